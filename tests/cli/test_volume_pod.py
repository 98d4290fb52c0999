"""The pods of commands cannot change the volume, unless the command has to."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cli import volume_pod as module
from cli.stack_outputs import VolumePlace
from infra.kube.api_server.access import Access
from infra.kube.files.task_pod import TaskPod, pod_manifest

PLACE = VolumePlace(Access(kubeconfig="{}"), "n", "o", "image", "claim", "/data/runs")


@pytest.mark.parametrize(
    ("given", "read_only"), [({}, True), ({"read_only": True}, True), ({"read_only": False}, False)]
)
def test_pod_mounts_the_volume_to_read_unless_it_is_asked_to_write(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], read_only: bool
) -> None:
    """The pods of `fetch`, `logs`, `runs` and others mount the volume read-only, so that no fault
    in them can harm checkpoints. Those of `push` and `runs delete` may write.
    """
    started = list[TaskPod]()

    @contextmanager
    def running(_: object, pod: TaskPod, **__: Any) -> Iterator[str]:
        started.append(pod)
        yield "/path"

    monkeypatch.setattr(module, "running", running)
    with module.volume_pod(PLACE, "task", "print()", **given):
        pass
    (pod,) = started
    spec = pod_manifest(pod, "name")["spec"]
    (container,) = spec["containers"]
    (mount,) = container["volumeMounts"]
    (claim,) = [each["persistentVolumeClaim"] for each in spec["volumes"] if each["name"] == "data"]
    assert mount["readOnly"] is claim["readOnly"] is read_only
