"""Why a pod that has a machine does not start, as `up`, `status` and other commands show it."""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.errors import ApiError, TaskError
from infra.kube.files.task_pod import TaskPod, running
from infra.kube.runs.controller_words import words_of_controller
from tests.unit.kube.server import ApiServer, Json, api_of

DENIED = "MountVolume.SetUp failed for volume pv-1: access denied by server"
SAID = f"FailedMount: {DENIED} (12:00:02)"
JOB: Json = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "uid": "u1"}}


def pod(name: str, phase: str = "Pending", machine: str = "a") -> Json:
    about = {"name": name, "uid": f"uid-of-{name}"}
    return {"metadata": about, "spec": {"nodeName": machine}, "status": {"phase": phase}}


def event(reason: str, message: str, second: int) -> Json:
    return {"reason": reason, "message": message, "lastTimestamp": f"2026-11-26T12:00:0{second}Z"}


class Cluster(ApiServer):
    """A stand-in for a cluster in which the volume of the pod `b` cannot be mounted.

    Args:
        may_read: whether these credentials may read events.
    """

    def __init__(self, *, may_read: bool = True) -> None:
        self._may_read = may_read

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        if not path.endswith("/events"):
            return pod("b") if method == "GET" else {}
        if not self._may_read:
            raise ApiError(403, "events is forbidden")
        if query["fieldSelector"] != "involvedObject.uid=uid-of-b,type=Warning":
            return {"items": []}
        # The scheduler's words are older than the machine that the pod has by now.
        found = event("FailedScheduling", "no node", 1), event("FailedMount", DENIED, 2)
        return {"items": [*found, event("FailedScheduling", "no node", 3)]}


def test_volume_of_a_pod_is_named() -> None:
    """If a volume cannot be mounted, the pod's status says only ContainerCreating, and the kubelet
    reports it in events. Its newest words are shown. Pods that run, and pods without a machine,
    are not asked about.
    """
    api = api_of(Cluster())
    assert words_of_controller(api, "ml", JOB, [pod("a"), pod("b")], 2) == SAID
    for other in (pod("a"), pod("b", "Running"), pod("b", machine="")):
        assert words_of_controller(api, "ml", JOB, [other], 1) == ""
    hidden = api_of(Cluster(may_read=False))
    assert words_of_controller(hidden, "ml", JOB, [pod("b")], 1) == ""


def test_pod_of_a_command_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command or a copy whose pod cannot mount the volume ends with the kubelet's words."""
    cluster = Cluster()
    monkeypatch.setattr("infra.kube.waiting.time", cluster)
    wanted = TaskPod("fetch", "owner-id", "ml", "image:1", ("true",), "claim", 60)
    with (
        pytest.raises(TaskError, match="FailedMount: MountVolume"),
        running(api_of(cluster), wanted, start_seconds=1),
    ):
        pass
