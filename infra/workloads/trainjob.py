"""Workload `trainjob`: a TrainJob of Kubeflow Trainer, with a TrainingRuntime that disttrain makes.

Trainer makes a JobSet from the TrainingRuntime. Everything about the pods is in the
TrainingRuntime, and the TrainJob itself sets nothing. So Trainer does not have to merge fields,
which each version of it does differently. The fields are those of
https://www.kubeflow.org/docs/components/trainer/ from 2.1 on.
"""

from infra.objects import NO_AWAIT, Manifest
from infra.workloads.jobset import first_host, jobset_spec
from infra.workloads.kind import WorkloadKind
from infra.workloads.run import Run

API_VERSION = "trainer.kubeflow.org/v1alpha1"
NODE = "node"  # Trainer's name for the Job that trains, and for its pods' container
STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}  # the label of that Job
FRAMEWORK = {"trainer.kubeflow.org/framework": "torch"}
"""A label of TrainingRuntimes that the Python library of Kubeflow reads.

Without it, the library's `get_job` fails for disttrain's TrainJob, and its `list_jobs` for all
TrainJobs of the namespace.
"""
OTHERWISE = (
    f"the cluster serves no TrainJob of {API_VERSION}, so Kubeflow Trainer's controller is "
    "not there. Let the platform's stack install it (controllers: [jobset, trainer]), install it "
    "yourself "
    "(https://www.kubeflow.org/docs/components/trainer/operator-guides/installation/), or take "
    "the kind that needs no controller: pulumi config set topology indexed-job"
)


def render(run: Run) -> list[tuple[str, Manifest]]:
    """The TrainingRuntime and the TrainJob. Trainer makes a JobSet with the TrainJob's name.

    The runtime names no framework (`mlPolicy` has no `torch`). So Trainer adds no variables, and
    the pods have those of disttrain. The JobSet has no `ttlSecondsAfterFinished`: if a JobSet is
    removed, Trainer makes it again, and a failed run would start again with all of its restarts.
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
    # The runtime describes the pods. In the TrainJob, only the label of its revision changes.
    replace_on=("metadata.labels",),
    # All versions of Trainer from 2.1 on refuse a TrainJob with the first message if their webhook
    # has not yet seen its runtime. Kueue refuses it with the second message if Kueue watches
    # TrainJobs, even a TrainJob in no queue. The runtime has the name of the TrainJob.
    refused_at_first=(
        "must be created before the TrainJob is created",
        "runtime '{name}' not found",
    ),
    otherwise=OTHERWISE,
    container=NODE,
)
