"""`./disttrain verify` shows what it has found, also if its last point could not be seen."""

from types import SimpleNamespace
from typing import NoReturn

import pytest

from cli.__main__ import main
from cli.verify import command
from cli.verify.evidence import result
from infra.kube.errors import ApiError, TaskError, UnreachableError


@pytest.mark.parametrize(
    "reason", [UnreachableError("the line was cut"), ApiError(409, "another"), TaskError("gone")]
)
def test_restart_that_was_not_seen_hides_no_other_point(
    reason: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the restart of `verify --restart` cannot be seen to its end, the other points are shown
    all the same, and the exit status is 1. The restart takes minutes, in which the API server may
    go away.
    """

    def fail(*_: object) -> NoReturn:
        raise reason

    place = SimpleNamespace(program="", run_path="/data/runs/dev", access=None)
    monkeypatch.setattr(command, "run_place", lambda _: place)
    monkeypatch.setattr(command, "gather", lambda *_: None)
    monkeypatch.setattr(command, "judge", lambda _: [result("steps", "ok", "training, step 7")])
    monkeypatch.setattr(command, "restart", fail)
    # `end_in_order` sets signal handlers of the whole process.
    monkeypatch.setattr(command, "end_in_order", lambda: None)
    assert main(["verify", "--restart"]) == 1
    said = capsys.readouterr().out
    assert "training, step 7" in said
    assert f"error          restart             {reason}" in said
    assert "fix: ./disttrain status" in said
