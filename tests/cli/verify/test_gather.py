"""What `disttrain verify` gathers for a user who may not do all that it needs."""

from types import SimpleNamespace
from typing import Any

import pytest

from cli.verify import gather
from infra.kube.errors import ApiError
from tests.cli.records import RECORD

POD = {"metadata": {"name": "train-a"}, "spec": {}, "status": {"phase": "Running"}}


def test_verify_without_the_right_to_exec_shows_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` goes on without the right to run commands in pods, and notes the refusal for each
    thing that it could not see.
    """

    def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(403, "pods is forbidden")

    monkeypatch.setattr(gather, "find_record", lambda *_: RECORD)
    monkeypatch.setattr(gather, "see_run", lambda *_: (SimpleNamespace(state="training"), [POD]))
    monkeypatch.setattr(gather, "ask_in_pod", refuse)
    monkeypatch.setattr(gather, "ask_by_pod", refuse)
    monkeypatch.setattr(gather, "stack_pod", lambda *_, **__: None)
    monkeypatch.setattr(gather, "_first_lines", lambda *_: "")
    place: Any = SimpleNamespace(namespace="n", owner="o", run_path="/data/runs/a", world_size=1)
    seen = gather.gather(SimpleNamespace(), place)  # pyright: ignore[reportArgumentType]
    assert seen.unseen == {"train-a": "pods is forbidden"}
    assert "pods is forbidden" in seen.volume_problem
