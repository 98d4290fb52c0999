"""Which machines keep pods that should have ended, from objects of the API."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from infra.kube.api import Api
from infra.kube.errors import ApiError
from infra.kube.silent_machines import describe, silent_machines, stranded

NOW = datetime(2026, 11, 26, 1, 0, tzinfo=UTC)
SINCE = "2026-11-26T00:53:09Z"


@dataclass
class Nodes:
    """An API server that knows nodes alone, and its clock."""

    answer: Callable[[str], dict[str, Any] | None]

    def now(self) -> datetime:
        return NOW

    def get(self, path: str) -> dict[str, Any] | None:
        return self.answer(path.removeprefix("/api/v1/nodes/"))


def api(answer: Callable[[str], dict[str, Any] | None]) -> Api:
    return cast(Api, Nodes(answer))


def node(status: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "lastTransitionTime": SINCE}
    return {"status": {"conditions": [ready]}}


def pod(machine: str, ends_in_seconds: int | None) -> dict[str, Any]:
    metadata = {"name": f"train-on-{machine}", "namespace": "disttrain"}
    if ends_in_seconds is not None:
        end = NOW + timedelta(seconds=ends_in_seconds)
        metadata["deletionTimestamp"] = f"{end:%Y-%m-%dT%H:%M:%SZ}"
    return {"metadata": metadata, "spec": {"nodeName": machine}}


def test_only_overdue_pods_on_silent_machines_count() -> None:
    """A pod that still saves is left in peace, and a machine that answers is not blamed."""
    statuses = {"off": "Unknown", "slow": "False", "well": "True", "saves": "Unknown"}
    pods = [pod("off", -1), pod("slow", -1), pod("well", -1), pod("saves", 60), pod("off", None)]
    assert silent_machines(api(lambda name: node(statuses[name])), pods) == {"off": SINCE}


def test_a_machine_without_node_is_left_out() -> None:
    """Kubernetes itself removes the pods of a Node object that has gone."""
    assert silent_machines(api(lambda name: None), [pod("gone", -1), pod("", -1)]) == {}


def test_nodes_that_may_not_be_read() -> None:
    """A user of one namespace gets no error; any other refusal is one."""

    def refuse(status: int) -> Api:
        def answer(name: str) -> None:
            raise ApiError(status, "no")

        return api(answer)

    assert silent_machines(refuse(403), [pod("off", -1)]) == {}
    with pytest.raises(ApiError):
        silent_machines(refuse(500), [pod("off", -1)])


def test_the_way_out_can_be_typed() -> None:
    """The message has each stranded pod and the command that removes exactly these."""
    said = stranded([pod("off", -1), pod("well", -1)], {"off": SINCE})
    assert "train-on-off cannot end, because machine off has not answered since" in said
    assert (
        "`kubectl delete pod train-on-off --namespace disttrain --grace-period=0 --force`" in said
    )
    assert "well" not in said
    assert describe({}) == ""
