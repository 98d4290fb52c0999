"""Workload `pytorchjob`: a PyTorchJob of Kubeflow's Training Operator, with workers only.

Without a master, the operator adds no init container, whose image would have to be pulled, and none
of its own variables for ranks and addresses. The names of the pods end with their indexes. The
fields are those of
https://www.kubeflow.org/docs/components/trainer/legacy-v1/ in version 1.9.
"""

from infra.names import MASTER_PORT
from infra.objects import NO_AWAIT, Manifest
from infra.workloads.headless import headless_service
from infra.workloads.kind import WorkloadKind
from infra.workloads.replica import INDEX_LABEL, indexed_template
from infra.workloads.run import Run

API_VERSION = "kubeflow.org/v1"
CONTAINER = "pytorch"  # the operator refuses pods without a container of this name
PORT = "pytorchjob-port"  # without a port of this name, the operator would add one of its own
RETRY_VARIABLE = "DISTTRAIN_RETRY_FROM_128"  # trainer/launch/exit_codes.py reads it
FIRST_SERVICE = "train-pytorchjob-first"
OTHERWISE = (
    f"the cluster serves no PyTorchJob of {API_VERSION}, so Kubeflow's Training Operator is "
    "not there. Let the platform's stack install it (controllers: [training-operator]), install it "
    "yourself "
    "(https://www.kubeflow.org/docs/components/trainer/legacy-v1/installation/), or take the kind "
    "that needs no controller: pulumi config set topology indexed-job"
)


def render(run: Run) -> list[tuple[str, Manifest]]:
    """A Service that leads to the pod with index 0, and the PyTorchJob.

    The operator makes a Service for each pod, but such a Service leads to its pod only when the pod
    is ready. disttrain's pods become ready only after they have found each other.
    """
    service = headless_service(run, _first(run))
    service["spec"]["selector"] = {**run.selector, INDEX_LABEL: "0"}
    port = {"name": PORT, "containerPort": MASTER_PORT, "protocol": "TCP"}
    job = {
        "apiVersion": API_VERSION,
        "kind": "PyTorchJob",
        "metadata": run.metadata(run.workload_name, NO_AWAIT),
        "spec": {
            "nprocPerNode": str(run.world.ranks_per_pod),
            # When the PyTorchJob has failed, the other pods end and free their GPUs.
            "runPolicy": {"cleanPodPolicy": "Running", **run.ttl},
            "pytorchReplicaSpecs": {
                "Worker": {
                    "replicas": run.world.pods,
                    # A pod that ends with an exit code of 128 or more is made again. Any other
                    # error code fails the PyTorchJob.
                    "restartPolicy": "ExitCode",
                    "template": indexed_template(run, {RETRY_VARIABLE: "1"}, ports=[port]),
                }
            },
        },
    }
    return [("service", service), ("pytorch-job", job)]


def _first(run: Run) -> str:
    return run.object_name(FIRST_SERVICE)


KIND = WorkloadKind(
    name="pytorchjob",
    api_version=API_VERSION,
    kind="PyTorchJob",
    object_name="train-pytorchjob",
    several_pods=True,
    render=render,
    rendezvous=lambda run: {"PET_MASTER_ADDR": _first(run)},
    suspend=lambda run: {"spec": {"runPolicy": {"suspend": True}}},
    resume=lambda run: {"spec": {"runPolicy": {"suspend": False}}},
    queued=True,
    no_ttl_because="",
    done=("Succeeded",),
    replace_on=("spec.pytorchReplicaSpecs", "spec.nprocPerNode"),
    changed_by_kueue=("spec.pytorchReplicaSpecs",),
    # The operator makes the Service `<PyTorchJob>-worker-<index>`. With the instance `first`, the
    # PyTorchJob's name is the beginning of the names of other runs' Services for index 0.
    child_ending="-worker-[0-9]+",
    otherwise=OTHERWISE,
    container=CONTAINER,
)
