"""A rank that does not end although it was killed is named.

In these tests no signal reaches the processes, which stands for processes that wait inside the
kernel and so do not end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer.launch import killed_ranks, local_ranks
from trainer.launch.local_ranks import LocalRanks, process_of
from trainer.launch.node_output import NodeOutput
from trainer.launch.status_files import StatusFiles
from trainer.launch.stop_request import StopRequest
from trainer.program import ranks as program_ranks
from trainer.program.ranks import ProgramRanks

SLEEPS = [sys.executable, "-c", "import signal, time; signal.pause()"]


class Said(NodeOutput):
    """Keeps the node's own lines."""

    def __init__(self) -> None:
        super().__init__(0, None)
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranks be killed, and named, without a wait."""
    monkeypatch.setattr(local_ranks, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(program_ranks, "GRACE_SECONDS", -1.0)
    monkeypatch.setattr(killed_ranks, "SAY_AFTER_SECONDS", 0.0)


@contextmanager
def not_killed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep every signal from the processes."""
    with monkeypatch.context() as stuck:
        stuck.setattr("subprocess.Popen.kill", lambda process: None)
        stuck.setattr("subprocess.Popen.send_signal", lambda process, number: None)
        stuck.setattr(program_ranks, "_signal_group", lambda group, number: None)
        yield


def end(ranks: LocalRanks) -> None:
    for pid in ranks.pids():
        os.kill(pid, signal.SIGKILL)
    while ranks.is_running():
        ranks.wait(60)
    ranks.close()


def test_rank_that_does_not_end_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line has the rank, the process and its state, and comes once for each rank."""
    said = Said()
    environments = [{"RANK": "4"}, {"RANK": "5"}]
    ranks = LocalRanks(process_of(SLEEPS), environments, StatusFiles(tmp_path), said)
    with not_killed(monkeypatch):
        for _ in range(3):
            ranks.end_soon()
    first, second = said.lines
    assert first.startswith(f"rank 4 (process {ranks.pids()[0]}) has not ended 0 s after it was")
    assert "its state is S (sleeping)" in first or "its state is R (running)" in first
    assert second.startswith("rank 5 ")
    end(ranks)


def test_rank_that_ends_is_not_named(tmp_path: Path) -> None:
    """A killed process that the kernel ends at once is nothing to tell."""
    said = Said()
    ranks = LocalRanks(process_of(SLEEPS), [{"RANK": "0"}], StatusFiles(tmp_path), said)
    (pid,) = ranks.pids()
    os.kill(pid, signal.SIGKILL)
    while ranks.is_running():
        ranks.wait(60)
    ranks.end_soon()
    assert said.lines == []
    ranks.close()


def test_program_that_does_not_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same holds for a user's own program, which may start its ranks itself.

    An entrypoint adopts and ends what a program leaves behind. This process must not: it would end
    what other tests have started.
    """
    monkeypatch.setattr(program_ranks, "take_orphans", lambda: None)
    monkeypatch.setattr(program_ranks, "end_leftovers", lambda helpers: ())
    said = Said()
    ranks = ProgramRanks(
        SLEEPS,
        [{}],
        StatusFiles(tmp_path),
        said,
        None,
        lambda rank, block: None,
        list,
        StopRequest(),
    )
    with not_killed(monkeypatch):
        ranks.end_soon()
        ranks.end_soon()
    (line,) = said.lines
    assert line.startswith(f"the program (process {ranks.pids()[0]}) has not ended")
    end(ranks)
