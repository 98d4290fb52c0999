"""Workload `indexed-job`: a Job whose completion indexes are the ranks of the nodes.

The pods end when the run is finished. So their GPUs are free then, without a `pulumi destroy`.
"""

from infra.objects import Manifest
from infra.workloads.headless import headless_service
from infra.workloads.job import RETRIES_PER_POD, job
from infra.workloads.kind import WorkloadKind
from infra.workloads.run import Run

HEADLESS_SERVICE = "train-indexed-headless"


def render(run: Run) -> list[tuple[str, Manifest]]:
    """A headless Service that gives each pod a name, and the Job.

    Kubernetes gives the pods the host names `<job>-<index>`. Each pod finds its index in the
    variable JOB_COMPLETION_INDEX
    (https://kubernetes.io/docs/concepts/workloads/controllers/job/).
    """
    spec = {
        "completionMode": "Indexed",
        "completions": run.world.pods,
        "parallelism": run.world.pods,
        "backoffLimit": RETRIES_PER_POD * run.world.pods,
        **run.ttl,
    }
    return [
        ("service", headless_service(run, _service(run))),
        ("job", job(run, spec, {"subdomain": _service(run)})),
    ]


def _service(run: Run) -> str:
    return run.object_name(HEADLESS_SERVICE)


KIND = WorkloadKind(
    name="indexed-job",
    api_version="batch/v1",
    kind="Job",
    object_name="train-indexed",
    several_pods=True,
    render=render,
    rendezvous=lambda run: {"PET_MASTER_ADDR": f"{run.workload_name}-0.{_service(run)}"},
    suspend=lambda run: {"spec": {"suspend": True}},
    resume=lambda run: {"spec": {"suspend": False}},
    queued=True,
    no_ttl_because="",
    changed_by_kueue=("spec.template",),
    replace_on=("spec.completions", "spec.parallelism"),
)
