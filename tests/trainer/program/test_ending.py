"""How long a process that does not end when it is asked to may go on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.launch.node_output import NodeOutput
from trainer.launch.status_files import StatusFiles
from trainer.launch.stop_request import StopRequest
from trainer.program import processes
from trainer.program import ranks as module
from trainer.program.ranks import ProgramRanks

LIMIT_SECONDS = 60
DEAF = "trap 'echo asked >> asked' TERM; touch here; while :; do sleep 0.05; done"


def wait_for_end(ranks: ProgramRanks) -> None:
    """Wait until the rank has ended, asking and looking again and again as the entrypoint does."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while ranks.is_running():
        assert time.monotonic() < deadline, "it still runs"
        ranks.end_soon()
        ranks.wait(0.05)


@pytest.fixture
def stop() -> StopRequest:
    return StopRequest()


@pytest.fixture
def deaf(
    tmp_path: Path, stop: StopRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ProgramRanks]:
    """Yield a rank that notes a SIGTERM and goes on, and whose time to end is over at once."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.0)
    # This process is pytest's, whose other children are none of the program's.
    monkeypatch.setattr(module, "take_orphans", lambda: None)
    monkeypatch.setattr(processes, "_PROC", tmp_path / "no-processes")
    made = ProgramRanks(
        ["sh", "-c", DEAF],
        [{**os.environ, "RANK": "0"}],
        StatusFiles(tmp_path / "status"),
        NodeOutput(0, None),
        tmp_path,
        lambda rank, block: None,
        list[int],
        stop,
    )
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (tmp_path / "here").exists():
        assert time.monotonic() < deadline, "it has not begun"
        time.sleep(0.01)
    yield made
    if made.is_running():
        os.killpg(made.pids()[0], signal.SIGKILL)
        made.wait(LIMIT_SECONDS)
    made.close()


def test_rank_that_does_not_end_is_killed_after_its_time(deaf: ProgramRanks) -> None:
    """A rank that does not end after another rank has failed is killed after its time, so that all
    ranks can start again together.
    """
    wait_for_end(deaf)
    assert deaf.exit_codes() == [-signal.SIGKILL]


def test_rank_of_a_run_that_is_stopped_has_the_pods_time(
    deaf: ProgramRanks, stop: StopRequest, tmp_path: Path
) -> None:
    """A rank of a run that is stopped is asked to end once, and is not killed however long it
    saves. Only Kubernetes ends it, also if another node has failed.
    """
    stop.requested = True
    deadline = time.monotonic() + LIMIT_SECONDS
    asked = tmp_path / "asked"
    while not asked.exists() or not asked.read_text():
        assert time.monotonic() < deadline, "it was not asked"
        deaf.end_soon()
        deaf.wait(0.01)
    deaf.end_soon()
    assert deaf.is_running()
    stop.requested = False
    wait_for_end(deaf)
    assert deaf.exit_codes() == [-signal.SIGKILL]
    assert asked.read_text() == "asked\n"
