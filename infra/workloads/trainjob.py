"""Workload `trainjob`: a TrainJob of Kubeflow Trainer, which makes a JobSet of a runtime of ours.

Everything of the pods stands in that TrainingRuntime, and the TrainJob itself sets nothing: so no
version of Trainer has to merge fields, which each of them does in another way. The fields are those
of https://www.kubeflow.org/docs/components/trainer/ from 2.1 on.
"""

from infra.objects import NO_AWAIT, Manifest
from infra.workloads.jobset import first_host, jobset_spec
from infra.workloads.kind import WorkloadKind
from infra.workloads.run import Run

API_VERSION = "trainer.kubeflow.org/v1alpha1"
NODE = "node"  # Trainer's name for the Job that trains, and for the container in its pods
STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}  # marks that Job
FRAMEWORK = {"trainer.kubeflow.org/framework": "torch"}
"""A label of runtimes that the Python library of Kubeflow reads. Without it, `get_job` fails for
our TrainJob, and `list_jobs` for all TrainJobs of the namespace."""
OTHERWISE = (
    f"the cluster serves no TrainJob of {API_VERSION}, so Kubeflow Trainer's controller is "
    "not there. Let the platform's stack install it (controllers: [jobset, trainer]), install it "
    "yourself "
    "(https://www.kubeflow.org/docs/components/trainer/operator-guides/installation/), or take "
    "the kind that needs no controller: pulumi config set topology indexed-job"
)


def render(run: Run) -> list[tuple[str, Manifest]]:
    """The TrainingRuntime, and the TrainJob, whose JobSet has its name.

    The runtime names no framework (`mlPolicy` has no `torch`), so Trainer adds no variables: the
    pods have ours. The JobSet has no `ttlSecondsAfterFinished`, because Trainer makes a JobSet that
    is gone anew, and a failed run would start again with all of its restarts.
    """
    metadata = run.metadata(run.workload_name, NO_AWAIT)
    runtime = {
        "apiVersion": API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": {**metadata, "labels": {**metadata["labels"], **FRAMEWORK}},
        "spec": {
            "mlPolicy": {"numNodes": run.world.pods},
            "template": {"spec": jobset_spec(run, NODE, STEP)},
        },
    }
    trainjob = {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {
            "runtimeRef": {
                "apiGroup": API_VERSION.partition("/")[0],
                "kind": "TrainingRuntime",
                "name": run.workload_name,
            }
        },
    }
    return [("training-runtime", runtime), ("train-job", trainjob)]


KIND = WorkloadKind(
    name="trainjob",
    api_version=API_VERSION,
    kind="TrainJob",
    object_name="train-trainjob",
    several_pods=True,
    render=render,
    rendezvous=lambda run: {"PET_MASTER_ADDR": first_host(run, NODE)},
    suspend=lambda run: {"spec": {"suspend": True}},
    resume=lambda run: {"spec": {"suspend": False}},
    queued=True,
    no_ttl_because="a TrainJob has no such field, and Trainer would make a JobSet anew that "
    "such a time has removed, so that a failed run would start again",
    # The pods stand in the runtime; of the TrainJob only the label of its revision changes.
    replace_on=("metadata.labels",),
    # So all versions from 2.1 on refuse a TrainJob whose runtime their webhook has not seen yet,
    # and so does Kueue, where it watches TrainJobs, of one in a queue or not. The runtime has the
    # name of the TrainJob.
    refused_at_first=(
        "must be created before the TrainJob is created",
        "runtime '{name}' not found",
    ),
    otherwise=OTHERWISE,
    container=NODE,
)
