"""`disttrain tensorboard` for users who may not forward ports."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from cli import tensorboard
from cli.stack_outputs import VolumePlace
from infra.kube.api_server.access import Access
from infra.kube.errors import ApiError

PLACE = VolumePlace(Access(kubeconfig="{}"), "n", "o", "image", "claim", "/data/runs")


def test_missing_right_to_forward_ports_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tensorboard` ends at once with the API server's refusal if the user may not forward ports.
    Otherwise it would wait two minutes for TensorBoard to answer, and could not say why it fails.
    """

    @contextmanager
    def running(*_: Any, **__: Any) -> Iterator[str]:
        yield "/pods/a"

    def refuse(path: str, query: list[tuple[str, str]]) -> None:
        raise ApiError(403, f"{path} {query} is forbidden")

    monkeypatch.setattr(tensorboard, "running", running)
    monkeypatch.setattr(tensorboard, "START_SECONDS", 0)
    api: Any = SimpleNamespace(websocket=refuse, get=lambda _: {"status": {"phase": "Running"}})
    with pytest.raises(ApiError, match=r"/pods/a/portforward .* is forbidden"):
        tensorboard.serve(api, PLACE, 0)
