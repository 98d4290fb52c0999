"""The check that `pulumi up` makes of a run with the setting `verify: after`."""

from types import SimpleNamespace
from typing import Any

import pytest

from cli.check import Result, Status
from cli.verify import at_up
from infra.kube.api_server.access import Access
from infra.kube.errors import TaskError
from infra.kube.job import Job

PLACE = {
    "image": "trainer:1",
    "run_path": "/data/runs/dev",
    "workload": "train-singlepod",
    "claim": "disttrain-pvc",
    "placement": {},
    "world_size": 2,
}
JOB = Job(Access(kubeconfig_path="none"), "ns", "me", "dev", {"place": PLACE})


def point(status: Status) -> Result:
    """Return a point of the check with this status."""
    return Result("steps", status, f"seen as {status}", "", 0)


def statuses_seen(monkeypatch: pytest.MonkeyPatch, *statuses: Status) -> None:
    """Let each check see the next of these statuses; the last one stays."""
    rest = list(statuses)
    monkeypatch.setattr(at_up, "PAUSE_SECONDS", 0.0)
    seen = {"status": SimpleNamespace(state="training")}
    monkeypatch.setattr(at_up, "gather", lambda _api, place: SimpleNamespace(**vars(place), **seen))

    def judge(place: Any) -> list[Result]:
        assert (place.owner, place.run_path, place.world_size) == ("me", "/data/runs/dev", 2)
        return [point(rest.pop(0) if len(rest) > 1 else rest[0])]

    monkeypatch.setattr(at_up, "judge", judge)


def test_a_point_may_become_right_a_little_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A point that is wrong at first may become right, and `up` then ends well."""
    statuses_seen(monkeypatch, "error", "error", "ok")
    at_up.create(JOB, SimpleNamespace())  # pyright: ignore[reportArgumentType]
    assert "seen as ok" in capsys.readouterr().out


@pytest.mark.parametrize("status", ["warning", "not checked", "not applicable"])
def test_only_wrong_points_make_up_fail(
    status: Status, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Warnings and points that could not be checked are shown and do not make `up` fail."""
    statuses_seen(monkeypatch, status)
    at_up.create(JOB, SimpleNamespace())  # pyright: ignore[reportArgumentType]
    assert f"seen as {status}" in capsys.readouterr().out


def test_a_point_that_stays_wrong_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A point that stays wrong makes `up` fail, and is shown."""
    statuses_seen(monkeypatch, "error")
    monkeypatch.setattr(at_up, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(TaskError, match="verify: after, and a point is wrong"):
        at_up.create(JOB, SimpleNamespace())  # pyright: ignore[reportArgumentType]
    assert "seen as error" in capsys.readouterr().out


@pytest.mark.parametrize("state", ["queued", "stopped"])
def test_run_without_a_step_by_choice_is_not_checked(
    state: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that waits in a queue or was stopped is not checked, and `up` ends well. Otherwise `up`
    would fail for a run that is right to have no step.
    """
    seen = SimpleNamespace(status=SimpleNamespace(state=state))
    monkeypatch.setattr(at_up, "gather", lambda *_: seen)
    at_up.create(JOB, SimpleNamespace())  # pyright: ignore[reportArgumentType]
    said = capsys.readouterr().out
    assert said == f"verify: after, and the run is {state}. Once it trains: ./disttrain verify\n"


def test_removing_it_removes_nothing() -> None:
    """`destroy` of this check has nothing to do and ends well."""
    assert at_up.main(["verify", "delete"]) == 0
