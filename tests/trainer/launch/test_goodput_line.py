"""The line that gives the account of a run, which a separate process makes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.events.stories import Story
from tests.trainer.lab import Lab, wait_for
from tests.trainer.process_tree import is_running
from trainer.events.event import event_file
from trainer.launch import goodput_line as module
from trainer.launch import killing
from trainer.launch.goodput_line import GoodputLine, goodput_line


@pytest.fixture
def arguments(lab: Lab) -> list[str]:
    """Return the arguments of a run whose events have 11 steps, and 2 s of training out of
    2.3 s.
    """
    run, told = lab.config(), Story()
    told.starts(1000, 100, 100, 100)
    told.trains(10, 200)
    file = event_file(run.run_dir, 0)
    file.parent.mkdir(parents=True)
    file.write_bytes(told.content)
    return ["--config", str(lab.config_file(run))]


def test_line_comes_while_the_ranks_run(lab: Lab, arguments: list[str]) -> None:
    """The line is printed again and again while the ranks run."""
    said: list[str] = []
    line = GoodputLine(arguments, 0, said.append, least_seconds=0)

    def has_said(times: int) -> bool:
        line.poll()
        return len(said) >= times

    wait_for("two lines", lambda: has_said(2), 120, lab)
    line.close()
    assert said[0] == said[1]
    assert said[0].startswith("goodput ")
    assert " min: 0 restarts, 0 steps made again; " in said[0]
    assert said[0].endswith(" rank-hours")


STANDS_STILL = """
import pathlib, sys, time
goes_on, is_over = map(pathlib.Path, sys.argv[1:])
deadline = time.monotonic() + 60
while not goes_on.exists() and time.monotonic() < deadline:
    time.sleep(0.01)
is_over.touch()
print("{}")
"""


def test_process_that_stands_still_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a process that stands still while the ranks run. At the end of the run it is
    ended after the limit, without a line.
    """
    goes_on, is_over = tmp_path / "goes-on", tmp_path / "is-over"
    command = [sys.executable, "-c", STANDS_STILL, str(goes_on), str(is_over)]
    monkeypatch.setattr(module, "own_command", lambda *_: command)
    monkeypatch.setattr(module, "LAST_LINE_SECONDS", 0.01)
    line = GoodputLine([], 0, pytest.fail, least_seconds=0)
    line.poll()
    (pid,) = line.pids()
    line.poll()
    assert line.pids() == [pid]
    line.say_last()
    assert line.pids() == []
    assert not is_running(pid)
    assert not is_over.exists()  # it would be, if anything had waited for a process


def test_process_that_cannot_be_killed_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the run waits only briefly for a process that does not end when it is killed. A
    process that waits for a dead NFS server may never end.
    """
    goes_on, is_over = tmp_path / "goes-on", tmp_path / "is-over"
    command = [sys.executable, "-c", STANDS_STILL, str(goes_on), str(is_over)]
    monkeypatch.setattr(module, "own_command", lambda *_: command)
    monkeypatch.setattr(module, "LAST_LINE_SECONDS", 0.01)
    monkeypatch.setattr(killing, "KILLED_SECONDS", 0.01)
    line = GoodputLine([], 0, pytest.fail, least_seconds=0)
    line.poll()
    killed: list[subprocess.Popen[bytes]] = []
    with monkeypatch.context() as stuck:
        stuck.setattr(subprocess.Popen, "kill", lambda process: killed.append(process))
        line.close()
        line.say_last()
    assert line.pids() == []
    assert len(killed) == 2
    assert not is_over.exists()  # it would be, if anything had waited for a process
    for process in killed:
        process.kill()
        process.wait(60)


def test_last_line_is_said_at_the_end(arguments: list[str]) -> None:
    """The line is printed once when the run ends."""
    said: list[str] = []
    GoodputLine(arguments, 0, said.append).say_last()
    assert len(said) == 1


def test_other_nodes_and_missing_events_say_nothing(lab: Lab, arguments: list[str]) -> None:
    """Only node 0 prints the line. A run whose volume lost the event file prints none, and trains
    on.
    """
    said: list[str] = []
    GoodputLine(arguments, 1, said.append).say_last()
    event_file(lab.config().run_dir, 0).unlink()
    GoodputLine(arguments, 0, said.append).say_last()
    assert said == []


def test_process_that_cannot_be_started_ends_no_round(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranks go on when the process of the line cannot be started, and it is tried again later.
    The ranks may use all processes or all memory that a pod may have.
    """
    said: list[str] = []
    line = GoodputLine(arguments, 0, said.append, least_seconds=0)

    def refuse(*values: object, **more: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    with monkeypatch.context() as full:
        full.setattr(subprocess, "Popen", refuse)
        line.poll()
        line.say_last()
    assert line.pids() == []
    line.say_last()
    assert len(said) == 1


def test_line_names_restarts_lost_steps_and_rank_hours() -> None:
    """The line has the goodput, the wall time, restarts, steps made again, and rank-hours."""
    account = {"wall_seconds": 8000.0, "goodput": 0.5, "restarts": 1, "lost_steps": 1}
    account["gpu_hours"] = 8000 * 3 / 3600
    said = "goodput 50.0% of 2.2 h: 1 restart, 1 step made again; 6.667 rank-hours"
    assert goodput_line(account) == said
