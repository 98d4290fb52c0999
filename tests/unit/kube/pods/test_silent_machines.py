"""Which machines keep pods that should have ended. The API server is a stand-in."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from infra.kube.pods.silent_machines import describe, pods_and_machines, silent_machines, stranded

NOW = datetime(2026, 11, 26, 1, 0, tzinfo=UTC)
SINCE = "2026-11-26T00:53:09Z"


@dataclass
class Nodes:
    """A stand-in for an API server that has only nodes, with a clock."""

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
    """A machine is reported only if it does not answer and a pod on it should have ended. A pod
    that still saves is not overdue, and a machine that answers is not blamed.
    """
    statuses = {"off": "Unknown", "slow": "False", "well": "True", "saves": "Unknown"}
    pods = [pod("off", -1), pod("slow", -1), pod("well", -1), pod("saves", 60), pod("off", None)]
    assert silent_machines(api(lambda name: node(statuses[name])), pods) == {"off": SINCE}


def test_a_machine_without_node_is_left_out() -> None:
    """A machine without a Node object is not reported, because Kubernetes itself removes its
    pods.
    """
    asked: list[str] = []

    def answer(name: str) -> None:
        asked.append(name)

    assert silent_machines(api(answer), [pod("gone", -1), pod("", -1)]) == {}
    assert asked == ["gone"], "a pod that waits for a machine has none"


def test_node_that_does_not_say_since_when() -> None:
    """A machine that does not answer is reported even if its node does not say since when."""
    silent = node("Unknown")
    del silent["status"]["conditions"][0]["lastTransitionTime"]
    found = silent_machines(api(lambda name: silent), [pod("off", -1)])
    assert describe(found) == "machine off has not answered since an unknown time"


def test_pods_are_said_with_the_machines_that_keep_them() -> None:
    """The text of each wait for pods names the pods and the machines that keep them."""
    pods = [pod("off", -1), pod("well", -1)]
    said = pods_and_machines(pods, {"off": SINCE})
    assert "train-on-off" in said
    assert said.endswith(
        f"train-on-well Pending, ending; machine off has not answered since {SINCE}"
    )
    assert pods_and_machines(pods, {}).endswith("train-on-well Pending, ending")
    assert pods_and_machines([], {"off": SINCE}) == ""


def test_nodes_that_may_not_be_read() -> None:
    """A user who may not read nodes gets no error. Any other refusal is an error."""

    def refuse(status: int) -> Api:
        def answer(name: str) -> None:
            raise ApiError(status, "no")

        return api(answer)

    assert silent_machines(refuse(403), [pod("off", -1)]) == {}
    with pytest.raises(ApiError):
        silent_machines(refuse(500), [pod("off", -1)])


def test_the_way_out_can_be_typed() -> None:
    """The message names each stranded pod and the command that removes exactly these pods."""
    said = stranded([pod("off", -1), pod("well", -1)], {"off": SINCE})
    assert "train-on-off cannot end, because machine off has not answered since" in said
    assert (
        "`kubectl delete pod train-on-off --namespace disttrain --grace-period=0 --force`" in said
    )
    assert "well" not in said
    assert describe({}) == ""
