"""A run whose queue, or whose Kueue, comes with its own platform."""

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from infra.kube.errors import ApiError
from infra.kube.queues.queue_look import queue_findings
from tests.unit.kube.server import ApiServer, Json, api_of

GROUP = "kueue.x-k8s.io"
OURS = ("localqueues/gpus", "workloadpriorityclasses/urgent")


class Cluster(ApiServer):
    """With Kueue, or without; of LocalQueues and ClusterQueues it has these.

    Args:
        objects: by the end of their paths; None: there is no Kueue.
    """

    def __init__(self, objects: Mapping[str, Json] | None) -> None:
        self._objects = objects

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        if self._objects is None:
            return None
        if path == f"/apis/{GROUP}":
            return {"versions": [{"version": "v1beta2"}]}
        if path.endswith(("localqueues", "workloadpriorityclasses")):
            return {"items": []}
        if path.endswith("/hidden"):
            raise ApiError(403, "forbidden")
        return self._objects.get("/".join(path.split("/")[-2:]))


def said(
    objects: Mapping[str, Json] | None,
    queue: str = "gpus",
    priority: str = "urgent",
    comes: Collection[str] = OURS,
    groups: Collection[str] = (GROUP,),
) -> str:
    found = queue_findings(api_of(Cluster(objects)), "ml", queue, priority, comes, groups)
    return "; ".join(found.problems)


def test_queue_may_come_with_kueue() -> None:
    """Both are the platform's, so nothing is missed before they are there."""
    assert said(None) == ""
    assert said({}) == ""
    words = "Kueue comes to the cluster with this stack, so there is no LocalQueue yet"
    assert words in said(None, queue="theirs")
    assert "so Kueue is not there. Install it" in said(None, groups=())
    assert "so Kueue is not there. Install it" in said(None, groups=("jobset.x-k8s.io",))


@pytest.mark.parametrize("stopped", ["localqueues/gpus", "clusterqueues/all"])
def test_own_queue_that_is_stopped(stopped: str) -> None:
    """A queue of the platform that is there already is looked at like one of others."""
    objects: dict[str, Json] = {
        "localqueues/gpus": {"spec": {"clusterQueue": "all"}},
        "clusterqueues/all": {"spec": {}},
    }
    assert said(objects) == ""
    objects[stopped]["spec"]["stopPolicy"] = "Hold"
    assert "is stopped (stopPolicy: Hold)" in said(objects)


def test_what_does_not_come_is_missed() -> None:
    """Another queue, and another class of priorities."""
    assert "has no such LocalQueue" in said({"namespaces/ml": {}}, queue="theirs")
    assert "no such WorkloadPriorityClass. There is none at all" in said({}, priority="low")
    assert said({}, priority="hidden") == said({}, priority="") == ""


@pytest.mark.parametrize("team", [True, False], ids=["its ClusterQueue", "LocalQueue"])
def test_inactive_queue_is_refused_beforehand(team: bool) -> None:
    """A ClusterQueue without its flavor starts nothing. Its LocalQueue says so too, where the
    ClusterQueue may not be read."""
    condition = {"type": "Active", "status": "False", "message": "flavor a100 is missing"}
    closed: Json = {"status": {"conditions": [condition]}}
    objects: dict[str, Json] = {
        "localqueues/gpus": {"spec": {"clusterQueue": "all" if team else "hidden"}, **closed},
        "clusterqueues/all": {"spec": {}, **closed},
    }
    what = "its ClusterQueue all" if team else "LocalQueue gpus"
    assert said(objects, priority="").endswith(
        f"cannot be used now: {what} is not active: flavor a100 is missing"
    )
