"""Workload `mpijob`: an MPIJob of Kubeflow's MPI Operator, whose launcher is node 0.

The ranks find each other as everywhere, so nothing here is started by `mpirun`, and the keys for
SSH that the operator puts into each pod open nothing. The launcher is a Job with one pod, and the
workers are pods that the kubelet starts again. The fields are those of
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/mpi/ in version v2beta1.
"""

from dataclasses import dataclass

from infra.objects import NO_AWAIT, Manifest
from infra.registry import OptionError
from infra.workloads.kind import WorkloadKind
from infra.workloads.queue_place import as_one_group
from infra.workloads.replica import indexed_template
from infra.workloads.run import Run

API_VERSION = "kubeflow.org/v2beta1"
LAUNCHER_RETRIES = 6
OTHERWISE = (
    f"the cluster serves no MPIJob of {API_VERSION}, so Kubeflow's MPI Operator is not there. "
    "Let the platform's stack install it (controllers: [mpi-operator]), install it yourself "
    "(https://github.com/kubeflow/mpi-operator#installation), "
    "or take the kind that needs no controller: pulumi config set topology indexed-job"
)


@dataclass(frozen=True)
class MpiJobOptions:
    """Options in the setting `topologyOptions`.

    Args:
        launcherRetries: how often a new pod takes the place of the launcher, which is node 0. The
            operator cannot tell why a pod has ended, so a fatal error is tried as often too. With
            0 it fails the MPIJob at once, and so does the loss of this one pod.

    Raises:
        OptionError: the number is negative.
    """

    launcherRetries: int = LAUNCHER_RETRIES  # noqa: N815 - as the stack's settings name it

    def __post_init__(self) -> None:
        if self.launcherRetries < 0:
            raise OptionError("launcherRetries", "it is too small", "Set 0 or more")


def render(run: Run) -> list[tuple[str, Manifest]]:
    """The MPIJob; the operator makes a headless Service that has its name.

    With `runLauncherAsWorker` the launcher's label has the index 0 and those of the workers begin
    with 1, and the Service leads to pods that are not ready yet: ours become ready only after they
    have found each other.
    """
    options: MpiJobOptions = run.kind_options
    template = indexed_template(run)
    if run.world.pods > 1:
        template = as_one_group(template)
    # A launcher that has failed stays to be read, and its Job makes another one.
    launcher = {"replicas": 1, "restartPolicy": "Never", "template": template}
    # A worker that has failed would stay, and never be made anew: it is started again in place.
    workers = {
        "replicas": run.world.pods - 1,
        "restartPolicy": "OnFailure",
        "template": template,
    }
    mpijob = {
        "apiVersion": API_VERSION,
        "kind": "MPIJob",
        "metadata": run.metadata(run.workload_name, NO_AWAIT),
        "spec": {
            "runLauncherAsWorker": True,
            "slotsPerWorker": run.world.ranks_per_pod,
            # With `WaitForWorkersReady` workers and launcher would wait for each other for ever.
            "launcherCreationPolicy": "AtStartup",
            "runPolicy": {
                "backoffLimit": options.launcherRetries,
                # When the launcher has ended, the workers end and free their GPUs.
                "cleanPodPolicy": "Running",
            },
            "mpiReplicaSpecs": {
                "Launcher": launcher,
                # The operator refuses a number of 0.
                **({"Worker": workers} if workers["replicas"] else {}),
            },
        },
    }
    return [("mpi-job", mpijob)]


KIND = WorkloadKind(
    name="mpijob",
    api_version=API_VERSION,
    kind="MPIJob",
    object_name="train-mpijob",
    several_pods=True,
    render=render,
    rendezvous=lambda run: {"PET_MASTER_ADDR": f"{run.workload_name}-launcher.{run.workload_name}"},
    suspend=lambda run: {"spec": {"runPolicy": {"suspend": True}}},
    resume=lambda run: {"spec": {"runPolicy": {"suspend": False}}},
    queued=True,
    no_ttl_because="the MPI Operator hands this time on to the Job of node 0 alone, so that Job "
    "would go and the MPIJob would stay",
    done=("Succeeded",),
    replace_on=("spec.mpiReplicaSpecs", "spec.runPolicy.backoffLimit", "spec.slotsPerWorker"),
    otherwise=OTHERWISE,
    options=MpiJobOptions,
)
