"""Workload `mpijob`: an MPIJob of Kubeflow's MPI Operator, whose launcher is node 0.

The ranks find each other as in the other kinds, and `mpirun` starts nothing. So the SSH keys that
the operator puts into each pod are useless. The launcher is a Job with one pod, and the workers are
pods that the kubelet starts again. The fields are those of
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/mpi/ in version v2beta1.
"""

from dataclasses import dataclass

from infra.objects import NO_AWAIT, Manifest
from infra.registry import OptionError
from infra.workloads.kind import WorkloadKind
from infra.workloads.replica import indexed_template
from infra.workloads.run import Run
from infra.workloads.topology_request import as_one_group

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
            operator does not look at exit codes, so the launcher is also tried again as often after
            a fatal error. With 0, a fatal error fails the MPIJob at once, but so does the loss of
            this one pod.

    Raises:
        OptionError: The number is negative.
    """

    launcherRetries: int = LAUNCHER_RETRIES  # noqa: N815 - as the stack's settings name it

    def __post_init__(self) -> None:
        if self.launcherRetries < 0:
            raise OptionError("launcherRetries", "it is too small", "Set 0 or more")


def render(run: Run) -> list[tuple[str, Manifest]]:
    """The MPIJob. The operator makes a headless Service of the same name.

    `runLauncherAsWorker` has two effects. The index in the launcher's label is 0, and those of the
    workers begin with 1. And the Service also leads to pods that are not ready yet, which is
    needed because disttrain's pods become ready only after they have found each other.
    """
    options: MpiJobOptions = run.kind_options
    template = indexed_template(run)
    if run.world.pods > 1:
        template = as_one_group(template)
    # The pod of a failed launcher stays, so that its log can be read. Its Job makes another pod.
    launcher = {"replicas": 1, "restartPolicy": "Never", "template": template}
    # The operator never replaces a failed worker. So the kubelet restarts the container in its pod.
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
            # With `WaitForWorkersReady`, workers and launcher would wait for each other forever.
            "launcherCreationPolicy": "AtStartup",
            "runPolicy": {
                "backoffLimit": options.launcherRetries,
                # When the launcher has ended, the workers end and free their GPUs.
                "cleanPodPolicy": "Running",
            },
            "mpiReplicaSpecs": {
                "Launcher": launcher,
                # The operator refuses workers with 0 replicas.
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
