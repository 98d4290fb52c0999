"""Workload `multi-pod`: the pods of a StatefulSet, whose ordinals are the ranks of the nodes."""

from infra.objects import Manifest
from infra.workloads.headless import headless_service
from infra.workloads.kind import WorkloadKind
from infra.workloads.run import Run
from infra.workloads.stateful import ANNOTATIONS, NEVER_ENDS, first_pod

HEADLESS_SERVICE = "train-mp-headless"


def render(run: Run) -> list[tuple[str, Manifest]]:
    """A headless Service that gives each rank a name, and the StatefulSet."""
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": run.metadata(run.workload_name, ANNOTATIONS),
        "spec": {
            "replicas": run.world.pods,
            "serviceName": _service(run),
            # All pods start at once, because a rank alone can do nothing.
            "podManagementPolicy": "Parallel",
            # A rolling update would wait for one new rank to be ready without the others.
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": run.selector},
            "template": run.template,
        },
    }
    return [("service", headless_service(run, _service(run))), ("stateful-set", stateful_set)]


def _service(run: Run) -> str:
    return run.object_name(HEADLESS_SERVICE)


KIND = WorkloadKind(
    name="multi-pod",
    api_version="apps/v1",
    kind="StatefulSet",
    object_name="train-multipod",
    several_pods=True,
    render=render,
    rendezvous=lambda run: first_pod(run, _service(run)),
    suspend=lambda run: {"spec": {"replicas": 0}},
    resume=lambda run: {"spec": {"replicas": run.world.pods}},
    no_ttl_because=NEVER_ENDS,
    # Other pods are another workload, as with a Job, and never a half-changed one. So is another
    # number of them, which each pod knows; a run that is stopped has no replicas, and stays itself.
    replace_on=("spec.template",),
)
