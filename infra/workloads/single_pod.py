"""Workload `single-pod`: a Job with one pod, in which all ranks run."""

from infra.objects import Manifest
from infra.workloads.job import job
from infra.workloads.kind import WorkloadKind
from infra.workloads.run import Run


def render(run: Run) -> list[tuple[str, Manifest]]:
    """One Job."""
    return [("job", job(run, run.ttl))]


KIND = WorkloadKind(
    name="single-pod",
    api_version="batch/v1",
    kind="Job",
    object_name="train-singlepod",
    several_pods=False,
    render=render,
    rendezvous=lambda run: {},
    suspend=lambda run: {"spec": {"suspend": True}},
    resume=lambda run: {"spec": {"suspend": False}},
    queued=True,
    no_ttl_because="",
    changed_by_kueue=("spec.template",),
)
