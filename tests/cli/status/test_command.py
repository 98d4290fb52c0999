"""What `./disttrain status` prints without a terminal: in a pipe, into a file, and for programs."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.__main__ import main
from cli.status import command
from cli.status.judge import RunStatus
from cli.status.platform_status import PlatformStatus
from cli.status.snapshot import Snapshot
from cli.status.storage import Claim
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from tests.cli.status.kubeconfigs import kubeconfig

Status = Callable[..., int]
GONE = ValueError("the line was cut")  # such as a kubeconfig that is being replaced
CUT = UnreachableError("the line was cut")


def run(state: str) -> RunStatus:
    """Return a run in this state."""
    return RunStatus("organization/disttrain/dev", "disttrain", "Job train-singlepod", 2, state)


def seen(*runs: RunStatus, missing: str = "") -> Snapshot:
    """Return a snapshot with these runs."""
    return Snapshot(PlatformStatus(1), runs, "", missing=missing)


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Status:
    """Return a function that runs `./disttrain status` with these snapshots, one after the other,
    and options.

    After the last snapshot it ends as by Ctrl-C. It returns the exit status.
    """

    def main_of(snapshots: list[Snapshot | Exception], *words: str) -> int:
        left = iter(snapshots)

        def take_snapshot(*_: object, **__: object) -> Snapshot:
            found = next(left, KeyboardInterrupt())
            if isinstance(found, BaseException):
                raise found
            return found

        monkeypatch.setattr(command, "take_snapshot", take_snapshot)
        # It would ask the volume how a run that is gone has ended.
        monkeypatch.setattr(command, "with_ends", lambda _api, seen, *_: seen)
        monkeypatch.setattr(command, "WATCH_SECONDS", 0.0)
        monkeypatch.setattr(Api, "now", lambda _: datetime(2026, 11, 22, tzinfo=UTC))
        return main(["status", "--kubeconfig", str(kubeconfig(tmp_path)), *words])

    return main_of


@pytest.mark.parametrize("failure", [CUT, ApiError(503, "the line was cut"), GONE])
def test_plain_watch_survives_a_cluster_away(
    status: Status, failure: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status --watch` goes on when the cluster is away for one snapshot: it says so, and tries
    again until Ctrl-C.
    """
    snapshots = [seen(run("training")), failure, seen(run("saving"))]
    assert status(snapshots, "--watch") == 130
    said = capsys.readouterr().out
    words = ("training", "the cluster was not seen: the line was cut", "saving")
    assert sorted(words, key=said.index) == list(words)


def test_watching_program_gets_json_for_each_look(
    status: Status, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status --watch --json` prints JSON for each snapshot. A snapshot that failed has the form of
    a status without a cluster.
    """
    assert status([seen(run("training")), CUT, seen(run("saving"))], "--watch", "--json") == 130
    decoder, text, found = json.JSONDecoder(), capsys.readouterr().out, list[dict[str, object]]()
    while text.strip():
        value, end = decoder.raw_decode(text.lstrip())
        found.append(value)
        text = text.lstrip()[end:]
    assert [sorted(each)[0] for each in found] == ["platform", "cluster_unseen", "platform"]
    assert found[1] == {
        "cluster_unseen": "the line was cut",
        "run_files": [],
        "not_read": [],
    }


def test_first_look_that_fails_ends_the_watch(
    status: Status, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the first snapshot fails, `status --watch` ends with 2 and the reason."""
    assert status([CUT], "--watch") == 2
    assert "the cluster could not be asked: the line was cut" in capsys.readouterr().err


def test_named_run_that_goes_is_said_while_watched(
    status: Status, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that goes while it is watched is said, and the watch goes on. A run that is not there
    at the first snapshot ends the watch with 2.
    """
    snapshots = [seen(run("training")), seen(missing="there is no run 'dev'")]
    assert status(snapshots, "dev", "--watch") == 130
    assert "there is no run 'dev'" in capsys.readouterr().out
    assert status([seen(missing="there is no run 'dev'")], "dev", "--watch") == 2
    assert "there is no run 'dev'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--context", "--namespace"])
def test_option_that_would_be_ignored_is_refused(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--context` and `--namespace` are refused without `--kubeconfig`. A stack has a cluster and a
    namespace of its own, and so other runs would be shown than those that were asked for.
    """
    assert main(["status", option, "other"]) == 2
    said = capsys.readouterr().err
    assert f"{option}: 'other' cannot be used without --kubeconfig" in said


@pytest.mark.parametrize(
    ("state", "exit_status"),
    [
        ("training", 0),
        ("queued", 0),
        ("recovering", 0),
        ("finished", 0),
        ("stalled", 1),
        ("failing", 1),
        ("failed", 1),
        ("gone", 1),
    ],
)
def test_exit_status_is_that_of_the_run(status: Status, state: str, exit_status: int) -> None:
    """The exit status says whether the run needs somebody."""
    assert status([seen(run(state))], "dev") == exit_status


@pytest.mark.parametrize(
    ("phase", "exit_status"),
    [("Bound", 0), ("Pending", 0), ("", 0), ("Lost", 1), ("Terminating", 1)],
)
def test_volume_that_is_lost_needs_somebody(status: Status, phase: str, exit_status: int) -> None:
    """The exit status is 1 if a volume is lost or being deleted, even if a run still trains on it.
    A claim that waits for its volume is no fault.
    """
    platform = PlatformStatus(1, claims=(Claim("disttrain", "disttrain-pvc", phase),))
    assert status([Snapshot(platform, (run("training"),), "")]) == exit_status
