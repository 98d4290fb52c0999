"""A process that saves checkpoints as the trainer does, and one that reads them on another machine.

All code that touches the volume is the trainer's own. Only the tensors are missing, because the
import of torch takes more than a minute in the guest.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.checkpoint import retention, store
from trainer.checkpoint.durable import write_text
from trainer.checkpoint.part_files import write_file
from trainer.checkpoint.run_lock import LOCK_FILE, RunLock
from trainer.launch.exit_codes import RetryableError

RUN = Path("/data/runs/one")
ROOT = RUN / "checkpoints"
KEPT = 2
MOST_FAILURES_IN_A_ROW = 3  # as in trainer/checkpoint/save.py
PAUSE_SECONDS = 0.1
FILES = {"model-00000.bin": 64 << 10, "optimizer-00000.bin": 128 << 10}  # bytes
Tell = Callable[[Any], None]
ShouldStop = Callable[[], bool]


def content(name: str, step: int) -> bytes:
    """Return the right content of a file in the checkpoint of `step`."""
    return hashlib.sha256(f"{name} {step}".encode()).digest() * (FILES[name] // 32)


def train(tell: Tell, should_stop: ShouldStop, wait_seconds: float, killed_at: int) -> None:
    """Continue from the newest checkpoint, and save one after the other until asked to stop.

    It tells `{"start": step, "said": lines}`, and then each step that is saved.

    Args:
        tell: a function that sends a value.
        should_stop: a function that returns whether the process was asked to stop.
        wait_seconds: how long it waits for the lock of the run.
        killed_at: at which audit event of Python (an open, a rename...) after the start the
            process gets SIGKILL; 0: never.
    """
    lock, said = RunLock(RUN, wait_seconds), list[str]()
    try:
        lock.acquire()
    except RetryableError as error:
        tell({"refused": str(error)})
        return
    ROOT.mkdir(exist_ok=True)
    store.remove_leftovers(ROOT, said.append)
    newest = store.latest_verified(ROOT, said.append)
    store.set_damaged_aside(ROOT, newest)
    tell({"start": newest, "said": said, "found": sorted(path.name for path in ROOT.iterdir())})
    if killed_at:
        _be_killed_at(killed_at)
    step, number, failures = (newest or 0) + 1, 0, 0
    while not should_stop():
        number += 1
        try:
            save(step, lock, f"{os.uname().nodename}-{os.getpid()}-{number}")
        except RetryableError as error:
            tell({"refused": str(error), "lock": (RUN / LOCK_FILE).read_text()})
            return
        except OSError as error:
            failures += 1
            if failures == MOST_FAILURES_IN_A_ROW:
                raise
            tell({"failed": str(error)})
            continue
        tell(step)
        step, failures = step + 1, 0


def save(step: int, lock: RunLock, tag: str, say: Callable[[str], None] | None = None) -> None:
    """Save as trainer/checkpoint/save.py does for one rank.

    `say` gets messages about what cannot be removed; without it, such a message is an error.
    """
    building = store.building_directory(ROOT, step, tag)
    texts = {store.STATE_FILE: json.dumps({"step": step}), store.LAYOUT_FILE: '{"tensors": {}}'}
    contents = {name: content(name, step) for name in FILES}
    contents.update({name: text.encode() for name, text in texts.items()})
    try:
        building.mkdir()
        entries = {name: write_file(building / name, [text]) for name, text in contents.items()}
        store.commit(building, step, entries, lock.check)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    retention.prune(ROOT, KEPT, keep_best=False, say=say or _fail)


def look(tell: Tell, should_stop: ShouldStop) -> None:
    """Look for the newest checkpoint repeatedly, and tell at the end what was seen.

    `wrong` are files whose checkpoint was verified but whose content was wrong. `partial` are
    checkpoints that had their final name but were incomplete. `gone` are those that were removed
    while this process read them.
    """
    seen, wrong, partial, gone = list[int](), list[str](), list[str](), list[str]()
    while not should_stop():
        time.sleep(PAUSE_SECONDS)  # This leaves the processor to the process that saves.
        said = list[str]()
        try:
            step = store.latest_verified(ROOT, said.append)
        except RetryableError as error:
            gone.append(str(error))
            continue
        for line in said:
            name = line.split()[1]
            (partial if (ROOT / name).exists() else gone).append(line)
        if step is None:
            continue
        try:
            if not seen or seen[-1] != step:
                seen.append(step)
            for name in FILES:
                if (store.directory_of(ROOT, step) / name).read_bytes() != content(name, step):
                    wrong.append(f"{name} of step {step}")
        except FileNotFoundError as error:
            gone.append(str(error))
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            gone.append(str(error))
    tell({"seen": seen, "wrong": wrong, "partial": partial, "gone": gone})


def write_one(tell: Tell, _should_stop: ShouldStop, name: str) -> None:
    """Write, fsync and rename a file; tell how many seconds that took, and when it was done."""
    begin = time.monotonic()
    write_text(RUN.parent / name, name)
    tell([time.monotonic() - begin, time.monotonic()])


def see_one(tell: Tell, should_stop: ShouldStop, name: str) -> None:
    """Tell at once whether a file exists, and later when it was first seen, with its text."""
    RUN.parent.mkdir(exist_ok=True)
    path = RUN.parent / name
    tell(path.exists())
    while not path.exists() and not should_stop():
        time.sleep(PAUSE_SECONDS)
    tell([time.monotonic(), path.read_text()])


def count_events(tell: Tell, _should_stop: ShouldStop) -> None:
    """Tell the audit events of Python about files during a save, in order."""
    lock, events = RunLock(RUN), list[str]()
    lock.acquire()
    ROOT.mkdir(exist_ok=True)
    sys.addaudithook(lambda event, values: events.append(event))
    for step in range(1, KEPT + 2):
        events.clear()
        save(step, lock, f"count-{step}")
    tell([event for event in events if counts(event)])


def counts(event: str) -> bool:
    """Return whether an audit event of Python is about files."""
    return event.split(".")[0] in ("open", "os", "shutil")


def _be_killed_at(number: int) -> None:
    count = 0

    def hook(event: str, _values: Any) -> None:
        nonlocal count
        count += counts(event)
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _fail(text: str) -> None:
    raise AssertionError(text)
