"""Accidents of a real run: each happens on one rank, for as long as a file exists."""

from __future__ import annotations

import errno
import gc
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Garbage:
    """Many objects, among which Python's garbage collector searches for a long time.

    The work is given by a count and not by a time: ten searches among a million lists, which take
    about 0.3 s of a core.
    """

    OBJECTS, LOOKS = 1_000_000, 10

    def __init__(self) -> None:
        self._kept = list[list[None]]()

    def search(self) -> None:
        """Run the garbage collector `LOOKS` times."""
        if not self._kept:
            self._kept = [[] for _ in range(self.OBJECTS)]
        for _ in range(self.LOOKS):
            gc.collect()


@dataclass(frozen=True)
class Accident:
    """An accident that happens on the rank `rank` while the file `switch` exists.

    Args:
        kind: a name in `KINDS`, or a fatal accident of fatal_accidents.py.
        rank: the rank on which it happens.
        switch: the path of the file.
        seconds: how much longer something takes each time, for kinds that make something slow.
    """

    kind: str
    rank: int
    switch: str
    seconds: float = 0.0

    def happens(self) -> bool:
        """Return whether this process is that rank and the file exists."""
        return os.environ.get("RANK") == str(self.rank) and Path(self.switch).exists()

    def begin(self) -> None:
        Path(self.switch).touch()

    def end(self) -> None:
        Path(self.switch).unlink()

    def pause(self) -> None:
        if self.happens():
            time.sleep(self.seconds)

    def hold(self) -> None:
        """Wait until the file is gone."""
        while self.happens():
            time.sleep(0.05)


def prepare(accident: Accident) -> None:
    """Change the trainer in this process, so that the accident can happen."""
    if accident.kind in KINDS:
        KINDS[accident.kind](accident)
        return
    from tests.trainer.fatal_accidents import prepare_fatal  # it imports torch

    prepare_fatal(accident.kind, accident.happens)


def _slow_data(accident: Accident) -> None:
    from trainer import set_up

    gather = set_up.gather

    def slow(*values: Any, **more: Any) -> Any:
        accident.pause()
        return gather(*values, **more)

    set_up.gather = slow


def _hanging_data(accident: Accident) -> None:
    """Let the read of a batch wait until the file is gone, as on a volume that does not answer."""
    from trainer import set_up

    gather = set_up.gather

    def hanging(*values: Any, **more: Any) -> Any:
        accident.hold()
        return gather(*values, **more)

    set_up.gather = hanging


def _held_at_a_step(accident: Accident) -> None:
    """Let the rank make no step after the one whose number is in the file, which the test writes
    anew as a whole.
    """
    from trainer import train

    update = train.update_weights

    def is_held(step: int) -> bool:
        try:
            return accident.happens() and step >= int(Path(accident.switch).read_text())
        except FileNotFoundError:  # the accident has just ended
            return False

    def held(run: Any, step: int) -> Any:
        while is_held(step):
            time.sleep(0.01)
        return update(run, step)

    train.update_weights = held


def _slow_forward(accident: Accident) -> None:
    from trainer.parallel.wrap import Parallel

    loss = Parallel.loss

    def slow(*values: Any, **more: Any) -> Any:
        accident.pause()
        return loss(*values, **more)

    Parallel.loss = slow


def _garbage_collection(accident: Accident) -> None:
    """Collect garbage in the forward pass, where Python also does it if many objects are made."""
    from trainer.parallel.wrap import Parallel

    loss, garbage = Parallel.loss, Garbage()

    def slow(*values: Any, **more: Any) -> Any:
        if accident.happens():
            garbage.search()
        return loss(*values, **more)

    Parallel.loss = slow


def _slow_backward(accident: Accident) -> None:
    _in_backward(lambda: accident.pause())


def _lock_never_given(accident: Accident) -> None:
    lock = threading.Lock()
    lock.acquire()

    def wait_for_ever() -> None:
        if accident.happens():
            lock.acquire()

    _in_backward(wait_for_ever)


def _skipped_collective(accident: Accident) -> None:
    """Skip the sum of one update's gradients, so that the rank's next collective does not match."""
    from trainer.parallel.wrap import Parallel

    loss = Parallel.loss

    def alone(self: Parallel, tokens: Any, targets: Any, reduces: bool) -> Any:
        return loss(self, tokens, targets, reduces and not accident.happens())

    Parallel.loss = alone


def _slow_checkpoint(accident: Accident) -> None:
    from trainer.checkpoint import part_files

    fsync = part_files.fsync_file

    def slow(path: Path) -> None:
        accident.pause()
        fsync(path)

    part_files.fsync_file = slow


def _hanging_commit(accident: Accident) -> None:
    """Let the write of a checkpoint's manifest wait until the file is gone. All ranks have written
    their parts by then.
    """
    from trainer.checkpoint import store

    write_json = store.write_json

    def hanging(path: Path, value: Any) -> None:
        accident.hold()
        write_json(path, value)

    store.write_json = hanging


def _failing_checkpoint(accident: Accident) -> None:
    """Fail at fsync with EIO, as on a disk with a bad block."""
    from trainer.checkpoint import part_files

    fsync = part_files.fsync_file

    def failing(path: Path) -> None:
        if accident.happens():
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        fsync(path)

    part_files.fsync_file = failing


def _garbled_data(accident: Accident) -> None:
    """Reverse the order of the targets."""
    from trainer import set_up

    gather = set_up.gather

    def garbled(*values: Any, **more: Any) -> Any:
        inputs, targets = gather(*values, **more)
        return inputs, targets.flip(1) if accident.happens() else targets

    set_up.gather = garbled


def _not_a_number(accident: Accident) -> None:
    """Make the loss NaN, and so every gradient, as on a GPU that computes wrong results."""
    from trainer.parallel.wrap import Parallel

    loss = Parallel.loss

    def broken(*values: Any, **more: Any) -> Any:
        found = loss(*values, **more)
        return found * math.nan if accident.happens() else found

    Parallel.loss = broken


def _in_backward(work: Callable[[], None]) -> None:
    from trainer.parallel.wrap import Parallel

    scale = Parallel.scale_for_grad_sum

    def scale_with_hook(self: Parallel, loss: Any) -> Any:
        loss.register_hook(lambda _: work())
        return scale(self, loss)

    Parallel.scale_for_grad_sum = scale_with_hook


class _Preparing(Protocol):
    def __call__(self, accident: Accident) -> None: ...


KINDS: dict[str, _Preparing] = {
    "slow data": _slow_data,
    "hanging data": _hanging_data,
    "held at a step": _held_at_a_step,
    "slow forward": _slow_forward,
    "slow backward": _slow_backward,
    "garbage collection": _garbage_collection,
    "slow checkpoint": _slow_checkpoint,
    "hanging commit": _hanging_commit,
    "failing checkpoint": _failing_checkpoint,
    "garbled data": _garbled_data,
    "not a number": _not_a_number,
    "lock never given": _lock_never_given,
    "skipped collective": _skipped_collective,
}
