"""`disttrain tensorboard` for users who may not forward ports, and with a pod that ends."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from cli import tensorboard
from cli.stack_outputs import VolumePlace
from infra.kube.api_server.access import Access
from infra.kube.errors import ApiError, TaskError

PLACE = VolumePlace(Access(kubeconfig="{}"), "n", "o", "image", "claim", "/data/runs")


def test_tensorboard_listens_only_inside_its_pod() -> None:
    """TensorBoard has no password, so it listens at its pod's loopback address alone: there the API
    server's forwarding of ports connects, and no other pod of the cluster can read all runs.
    """
    command = " ".join(tensorboard.board_pod(PLACE).command)
    assert re.findall(r"--host\S* *\S*|--bind\S*", command) == ["--host 127.0.0.1"], command


@pytest.fixture(autouse=True)
def _started_pod(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Let the start of a pod yield the path /pods/a."""

    @contextmanager
    def running(*_: Any, **__: Any) -> Iterator[str]:
        yield "/pods/a"

    monkeypatch.setattr(tensorboard, "running", running)


def test_missing_right_to_forward_ports_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tensorboard` ends at once with the API server's refusal if the user may not forward ports.
    Otherwise it would wait two minutes for TensorBoard to answer, and could not say why it fails.
    """

    def refuse(path: str, query: list[tuple[str, str]]) -> None:
        raise ApiError(403, f"{path} {query} is forbidden")

    monkeypatch.setattr(tensorboard, "START_SECONDS", 0)
    api: Any = SimpleNamespace(websocket=refuse, get=lambda _: {"status": {"phase": "Running"}})
    with pytest.raises(ApiError, match=r"/pods/a/portforward .* is forbidden"):
        tensorboard.serve(api, PLACE, 0)


def ended(**terminated: object) -> dict[str, Any]:
    """Return a pod whose container has ended so, with another container beside it that runs."""
    containers = [{"state": {"terminated": terminated}}, {"state": None}]
    return {"status": {"phase": "Failed", "containerStatuses": containers}}


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (None, "somebody has deleted it"),
        ({"status": {"phase": "Failed", "containerStatuses": None}}, "Kubernetes gives no reason"),
        (
            {"status": {"phase": "Failed", "reason": "DeadlineExceeded", "message": "12 h"}},
            "DeadlineExceeded: 12 h",
        ),
        (ended(reason="OOMKilled", exitCode=137), "OOMKilled (exit code 137)"),
        (
            ended(reason="Error", exitCode=1, message="Traceback\n...\nOSError: disk\n"),
            "Error (exit code 1): OSError: disk",
        ),
    ],
)
def test_pod_that_has_ended_is_explained(pod: dict[str, Any] | None, reason: str) -> None:
    """If the pod ends, the error has the reason that Kubernetes gives, the last line of the log,
    and what to do. It used to say only that the pod has ended.
    """
    api: Any = SimpleNamespace(get=lambda _: pod)
    with pytest.raises(TaskError) as failure:
        tensorboard.serve(api, PLACE, 0)
    assert str(failure.value) == (
        f"the pod of TensorBoard has ended: {reason}. Run ./disttrain tensorboard again; what it "
        "shows is still on the volume"
    )
