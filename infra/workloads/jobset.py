"""Workload `jobset`: a JobSet with one Job, whose completion indexes are the ranks of the nodes.

If a pod is lost, the Job fails, and JobSet's controller makes the Job and all of its pods again.
The fields are those of https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/.
"""

from collections.abc import Mapping

from infra.objects import NO_AWAIT, Manifest
from infra.workloads.job import RETRIES_PER_POD, job_spec
from infra.workloads.kind import WorkloadKind
from infra.workloads.run import Run

API_VERSION = "jobset.x-k8s.io/v1alpha2"
JOB = "nodes"  # the name of the one Job in the JobSet
FATAL_RULE = "fatal"
MOST_RESTARTS = 10 * RETRIES_PER_POD
"""The number of restarts after which the controller marks the run as failed.

The number does not depend on the number of pods: neither JobSet nor Trainer allows a change of a
`failurePolicy`. In a preview, the provider makes a dry run of the new JobSet on the old one. It
would be refused if a change of `pods` also changed this number.
"""
OTHERWISE = (
    f"the cluster serves no {API_VERSION}, so JobSet's controller is not there. Let the "
    "platform's stack install it (controllers: [jobset]), install it yourself "
    "(https://jobset.sigs.k8s.io/docs/installation/), or take the kind that needs no controller: "
    "pulumi config set topology indexed-job"
)


def render(run: Run) -> list[tuple[str, Manifest]]:
    """The JobSet. Its controller makes the headless Service and the Job."""
    jobset = {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": run.metadata(run.workload_name, NO_AWAIT),
        "spec": {**jobset_spec(run, JOB), **run.ttl},
    }
    return [("job-set", jobset)]


def jobset_spec(run: Run, name: str, labels: Mapping[str, str] | None = None) -> Manifest:
    """The spec of a JobSet that has the workload's name.

    Args:
        run: the run.
        name: the name of the one Job in the JobSet.
        labels: the labels of that Job.
    """
    job = job_spec(
        run,
        {
            "completionMode": "Indexed",
            "completions": run.world.pods,
            "parallelism": run.world.pods,
            # The first failed or evicted pod ends the Job, and JobSet makes the Job again at once.
            # A Job that replaced an evicted pod itself would wait longer each time. If Kueue or
            # `./disttrain stop` suspends the Job, its pods end with an exit code that is ignored.
            "backoffLimit": 0,
        },
        on_disruption="Count",
    )
    template_metadata = {"metadata": {"labels": dict(labels)}} if labels else {}
    return {
        "network": {
            "enableDNSHostnames": True,
            # The ranks have to find each other before they can become ready.
            "publishNotReadyAddresses": True,
            "subdomain": run.workload_name,
        },
        "failurePolicy": {
            "maxRestarts": MOST_RESTARTS,
            # New pods start only when all old ones have ended. Otherwise both would write to the
            # folder of the same run.
            "restartStrategy": "BlockingRecreate",
            "rules": [
                {
                    "name": FATAL_RULE,
                    "action": "FailJobSet",
                    # Of the Job's rules, only the one for a fatal exit code makes the Job fail.
                    "onJobFailureReasons": ["PodFailurePolicy"],
                }
            ],
        },
        "replicatedJobs": [
            {"name": name, "replicas": 1, "template": {**template_metadata, "spec": job}}
        ],
    }


def first_host(run: Run, name: str) -> str:
    """The DNS name of the pod with index 0.

    The host names of the pods are `<JobSet>-<Job>-0-<index>`, and the headless Service has the
    JobSet's name.
    """
    return f"{run.workload_name}-{name}-0-0.{run.workload_name}"


KIND = WorkloadKind(
    name="jobset",
    api_version=API_VERSION,
    kind="JobSet",
    object_name="train-jobset",
    several_pods=True,
    render=render,
    rendezvous=lambda run: {"PET_MASTER_ADDR": first_host(run, JOB)},
    suspend=lambda run: {"spec": {"suspend": True}},
    resume=lambda run: {"spec": {"suspend": False}},
    queued=True,
    no_ttl_because="",
    done=("Completed",),
    replace_on=("spec.network", "spec.failurePolicy", "spec.replicatedJobs"),
    changed_by_kueue=("spec.replicatedJobs",),
    # JobSet refuses a name with which the pods' names would have more than 63 characters. A preview
    # makes a dry run of a new JobSet under a name that is 5 characters longer.
    longest_instance=26,
    otherwise=OTHERWISE,
)
