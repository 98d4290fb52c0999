"""A volume fails 200 times while checkpoints are saved on it, and none that was complete is lost.

The volume is a file system of the tests (FUSE) in which any operation of a program can fail, be
slow, or be the last one of that program. `tests/vm` has the same programs on a real NFS server.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.trainer.faulty.file_system import FaultyFileSystem, Request
from tests.vm.guest import training
from trainer.checkpoint import store
from trainer.checkpoint.run_lock import RunLock
from trainer.launch.exit_codes import RetryableError

FAILING, KILLS = 140, 60
MOST_ACTS = 250  # about as many as a few saves make
ERRORS = (errno.EIO, errno.ENOSPC, errno.ESTALE)
PROJECT = Path(__file__).parents[3]


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyFileSystem]:
    """Yield a faulty file system that works until the test says otherwise. The run's folder is on
    it.
    """
    for name in ("folder", "volume"):
        (tmp_path / name).mkdir()
    made = FaultyFileSystem(tmp_path / "folder", tmp_path / "volume")
    monkeypatch.setattr(training, "RUN", made.target / "one")
    monkeypatch.setattr(training, "ROOT", made.target / "one/checkpoints")
    try:
        yield made
    finally:
        made.close()


class Acts:
    """Counts the operations on the volume, and lets `times` of them fail, from number
    `first` on.
    """

    def __init__(self) -> None:
        self.count, self.first, self.last, self.error = 0, 0, 0, 0

    def fail(self, first: int, times: int, error: int) -> None:
        self.count, self.first, self.last, self.error = 0, first, first + times, error

    def __call__(self, request: Request) -> None:
        self.count += 1
        if self.first < self.count <= self.last:
            raise OSError(self.error, os.strerror(self.error), request.path)


def look() -> tuple[int | None, list[str]]:
    """Return the newest verified checkpoint's step and what was said while looking for it."""
    said = list[str]()
    return store.latest_verified(training.ROOT, said.append), said


def is_whole(step: int) -> bool:
    """Return whether all files of the checkpoint have the content that the program saves at this
    step.
    """
    folder = store.directory_of(training.ROOT, step)
    names = training.FILES
    return all((folder / name).read_bytes() == training.content(name, step) for name in names)


def assert_complete(told: object) -> None:
    """Assert that each folder with a checkpoint's name is complete. Nobody may be saving
    meanwhile.
    """
    assert store.complete_steps(training.ROOT) == store.all_steps(training.ROOT), told


def test_failing_acts_cost_no_complete_checkpoint(volume: FaultyFileSystem) -> None:
    """After one failing operation, several in a row, or failures until the save is given up, the
    newest checkpoint is complete, and new ones can be saved.

    Some saves are of a step that has a checkpoint already, as after a start from an older one.
    """
    draw, acts, tags = Random("failing acts"), Acts(), itertools.count()
    volume.hook = acts
    lock = RunLock(training.RUN)
    lock.acquire()
    training.ROOT.mkdir()
    said = list[str]()
    for step in (1, 2, 3):  # from the third on, a save ends with a removal
        acts.count = 0
        training.save(step, lock, f"tag-{next(tags)}", said.append)
    in_all, newest, failed = acts.count, 3, 0
    assert said == []
    for number in range(FAILING):
        before, step = newest, newest + draw.choice((0, 1, 1))
        acts.fail(draw.randrange(in_all), draw.choice((1, 1, 3, in_all)), draw.choice(ERRORS))
        told = f"fault {number}: acts {acts.first} to {acts.last}, {errno.errorcode[acts.error]}"
        is_saved = False
        with contextlib.suppress(OSError, RetryableError):
            training.save(step, lock, f"tag-{next(tags)}", said.append)
            is_saved = True
        acts.fail(0, 0, 0)
        failed += not is_saved
        found, skipped = look()
        assert skipped == [], told  # nothing in place is incomplete
        if is_saved:
            assert found == step, told
        store.remove_leftovers(training.ROOT, pytest.fail)  # as the next start does
        newest, skipped = look()
        assert skipped == [], told
        assert newest is not None, told
        assert newest in ((step,) if is_saved else (before, step)), told
        assert is_whole(newest), told
        assert_complete(told)
        assert not [path.name for path in training.ROOT.iterdir() if path.name[0] == "."], told
    assert failed > FAILING / 4  # the others hit an act whose failure a save survives
    training.save(newest + 1, lock, "last")
    assert look() == (newest + 1, [])
    lock.release()


class LastAct:
    """Kills the program that asks for the operation with this number, or for the first rename after
    that.

    The operation itself is then still done, as a file server may do it, or never. A rename takes a
    while before that.
    """

    def __init__(self, number: int, *, is_done: bool, is_rename: bool) -> None:
        self._left, self._is_done, self._is_rename = number, is_done, is_rename
        self._is_over = False

    def __call__(self, request: Request) -> None:
        self._left -= 1
        if self._is_over or self._left > 0 or (self._is_rename and request.act != "rename"):
            return
        self._is_over = True
        os.kill(request.process, signal.SIGKILL)
        if self._is_rename:
            time.sleep(0.2)  # the kernel gives the request up meanwhile
        if not self._is_done:
            raise OSError(errno.EINTR, "killed")


def test_program_killed_at_any_act_leaves_the_newest_one(volume: FaultyFileSystem) -> None:
    """After a kill at any operation, the next program finds the checkpoint that was saved last and
    nothing else, because it removes what the kill has left.
    """
    draw, newest = Random("kills"), 0
    for number in range(KILLS):
        act = LastAct(
            draw.randrange(MOST_ACTS), is_done=draw.random() < 0.5, is_rename=number % 10 == 0
        )
        with saver() as process:
            newest = started(process, newest)
            volume.hook = act
            for line in process.stdout or ():
                newest = json.loads(line)
            assert process.wait() == -signal.SIGKILL
        volume.hook = lambda request: None
        assert_complete(number)
    with saver() as process:
        assert is_whole(started(process, newest))


def started(process: subprocess.Popen[str], newest: int) -> int:
    """Return the step from which the program goes on, which is `newest`, or the one after it if the
    kill came before the program could tell of it.
    """
    start = told(process)
    assert start["said"] == []
    step = start["start"] or 0
    assert step in (newest, newest + 1)
    steps = [int(name.removeprefix("step-")) for name in start["found"]]  # fails for any other name
    assert max(steps, default=0) == step
    return step


def test_client_that_sees_all_late_takes_no_wrong_one(
    volume: FaultyFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose view of the volume is late, with new names missing and removed names still
    there, never takes a wrong or partial checkpoint.

    The saves go on until the files of ten of them were read.
    """
    (tmp_path / "late").mkdir()
    before, read = dict[Path, list[str]](), set[str]()

    def late_names(folder: Path) -> list[str]:
        now = sorted(path.name for path in folder.iterdir())
        seen, before[folder] = before.get(folder, now), now
        return seen

    def stale(request: Request) -> None:
        is_there = (tmp_path / "folder" / request.path).exists()
        if request.act in ("open", "lookup") and not is_there and "/step-" in request.path:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        if request.act == "read" and request.path.endswith(".bin"):
            read.add(request.path)

    def slow_rename(request: Request) -> None:
        if request.act == "rename":
            time.sleep(0.05)

    volume.hook = slow_rename
    late = FaultyFileSystem(tmp_path / "folder", tmp_path / "late", stale, late_names)
    seen = dict[str, Any]()
    stop = threading.Event()
    reader = threading.Thread(target=training.look, args=(seen.update, stop.is_set))
    try:
        with saver(volume.target / "one") as process:
            assert told(process)["start"] is None
            monkeypatch.setattr(training, "ROOT", late.target / "one/checkpoints")
            reader.start()
            saved = [told(process)]
            while len(read) < 10 * len(training.FILES) and reader.is_alive():
                saved.append(told(process))
            assert process.stdin
            process.stdin.write("stop\n")
            process.stdin.flush()
    finally:
        stop.set()
        if reader.ident:
            reader.join()
        late.close()
    assert saved == list(range(1, len(saved) + 1))
    assert (seen["wrong"], seen["partial"]) == ([], [])
    assert seen["seen"] == sorted(seen["seen"])
    assert seen["seen"]


@contextlib.contextmanager
def saver(run: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Start the program `tests.trainer.faulty.saver`, yield its process, and end it afterwards."""
    command = [sys.executable, "-m", "tests.trainer.faulty.saver", str(run or training.RUN)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str]) -> Any:
    """Return the next message of the program."""
    assert process.stdout
    line = process.stdout.readline()
    assert line, "it has ended"
    return json.loads(line)
