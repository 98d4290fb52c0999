"""Workload `multi-pod`: a StatefulSet, the ordinals of whose pods are the ranks of the nodes."""

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
            # All pods start at once, because one rank alone cannot train.
            "podManagementPolicy": "Parallel",
            # A rolling update would replace one pod and wait until it is ready. It never would be,
            # because it needs the other new pods.
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
    # If the pods change, the StatefulSet is replaced, like a Job, so that it never has pods of two
    # revisions. A new number of pods also changes the template, because each pod knows the number.
    # The field `replicas` is not in this list: when a run is stopped, only this field changes.
    replace_on=("spec.template",),
)
