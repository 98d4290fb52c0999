"""Which controllers a run needs, and which Deployments are theirs."""

from typing import Any

import pytest

from infra.kube.controllers.programs_of_runs import ALL, KUEUE, is_of, programs_of
from infra.kube.workload import Workload
from infra.names import QUEUE_LABEL
from infra.workloads import WORKLOADS

IN_A_QUEUE: dict[str, Any] = {"metadata": {"labels": {QUEUE_LABEL: "gpus"}}}


def deployment(**labels: str) -> dict[str, Any]:
    """Return a Deployment with the labels `app.kubernetes.io/KEY` that are given."""
    return {"metadata": {"labels": {f"app.kubernetes.io/{k}": v for k, v in labels.items()}}}


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_each_kind_that_needs_a_controller_names_its_programs(name: str) -> None:
    """Each kind that not every cluster serves needs programs, and the others need none, except
    Kueue for a run in a queue. A new kind without its programs would be left out by `status`.
    """
    kind = WORKLOADS[name]
    workload = Workload(kind.api_version, kind.kind, kind.object_name)
    own = programs_of(workload, {})
    assert bool(own) == bool(kind.otherwise)
    assert KUEUE not in own
    assert set(own) < set(ALL)
    assert programs_of(workload, IN_A_QUEUE) == (*own, KUEUE)


def test_trainjob_needs_two_controllers_and_volcano_two_programs() -> None:
    titles = {
        name: [each.title for each in programs_of(Workload(kind.api_version, kind.kind, "x"), {})]
        for name, kind in WORKLOADS.items()
    }
    assert titles["trainjob"] == ["Kubeflow Trainer", "JobSet's controller"]
    assert titles["volcano"] == ["Volcano's controller", "Volcano's scheduler"]


def test_deployment_of_something_else_is_not_taken_for_a_controller() -> None:
    """A Deployment counts only with all labels of a controller. Another team's `trainer`, or
    Kueue's own dashboard, which may be scaled to 0, says nothing about a controller.
    """
    assert not [each for each in ALL if is_of(each, deployment(name="trainer"))]
    assert not [each for each in ALL if is_of(each, deployment(name="kueue"))]
    assert not [each for each in ALL if is_of(each, {"metadata": {}})]


def test_controllers_from_charts_and_from_manifests_are_found() -> None:
    """JobSet and Kubeflow Trainer have other labels in their charts than in their manifests."""
    by_manifests = deployment(name="deployment", **{"part-of": "jobset"})
    by_manifests["metadata"]["labels"]["control-plane"] = "controller-manager"
    given = [
        deployment(name="jobset", instance="jobset", component="controller"),
        by_manifests,
        deployment(name="kubeflow-trainer", instance="mine"),
        deployment(name="trainer", component="manager", **{"part-of": "kubeflow"}),
    ]
    found = [[each.title for each in ALL if is_of(each, item)] for item in given]
    assert found == [["JobSet's controller"]] * 2 + [["Kubeflow Trainer"]] * 2
