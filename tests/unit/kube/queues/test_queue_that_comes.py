"""How a queue is checked that comes with the platform of the same stack, as Kueue itself may."""

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from infra.kube.errors import ApiError
from infra.kube.queues.queue_findings import queue_findings
from tests.unit.kube.server import ApiServer, Json, api_of

GROUP = "kueue.x-k8s.io"
OURS = ("localqueues/gpus", "workloadpriorityclasses/urgent")


class Cluster(ApiServer):
    """A stand-in for a cluster with Kueue or without it.

    Args:
        objects: LocalQueues, ClusterQueues and other objects, by the last two parts of their paths.
            None: there is no Kueue.
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
    """Return the problems of the queue and of the priority class, as one text.

    Args:
        objects: what the cluster has, as for `Cluster`.
        queue: the LocalQueue of the run.
        priority: the priority class of the run; empty: none.
        comes: the queues and priority classes that come with the stack.
        groups: the API groups that come with the stack.
    """
    found = queue_findings(api_of(Cluster(objects)), "ml", queue, priority, comes, groups)
    return "; ".join(found.problems)


def test_queue_may_come_with_kueue() -> None:
    """A queue that comes with the platform is accepted before it exists, also if Kueue itself still
    has to come with the platform. A queue of others, and a Kueue that does not come with this
    stack, are refused as missing.
    """
    assert said(None) == ""
    assert said({}) == ""
    words = "Kueue comes to the cluster with this stack, so there is no LocalQueue yet"
    assert words in said(None, queue="theirs")
    assert "so Kueue is not there. Install it" in said(None, groups=())
    assert "so Kueue is not there. Install it" in said(None, groups=("jobset.x-k8s.io",))


@pytest.mark.parametrize("stopped", ["localqueues/gpus", "clusterqueues/all"])
def test_own_queue_that_is_stopped(stopped: str) -> None:
    """A queue of the platform that exists already is refused if it is stopped, like a queue of
    others.
    """
    objects: dict[str, Json] = {
        "localqueues/gpus": {"spec": {"clusterQueue": "all"}},
        "clusterqueues/all": {"spec": {}},
    }
    assert said(objects) == ""
    objects[stopped]["spec"]["stopPolicy"] = "Hold"
    assert "is stopped (stopPolicy: Hold)" in said(objects)


def test_what_does_not_come_is_missed() -> None:
    """A LocalQueue or WorkloadPriorityClass that neither exists nor comes with the stack is
    refused. A class that may not be read is accepted.
    """
    assert "has no such LocalQueue" in said({"namespaces/ml": {}}, queue="theirs")
    assert "no such WorkloadPriorityClass. There is none at all" in said({}, priority="low")
    assert said({}, priority="hidden") == said({}, priority="") == ""


@pytest.mark.parametrize("team", [True, False], ids=["its ClusterQueue", "LocalQueue"])
def test_inactive_queue_is_refused_beforehand(team: bool) -> None:
    """A queue that is not active, for example because a flavor is missing, is refused with Kueue's
    reason. If the ClusterQueue may not be read, the LocalQueue gives the reason.
    """
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
