"""Writes and reads what the launcher keeps about a program in the run's folder.

metrics.jsonl    step and loss, as our trainer writes them (trainer/metrics/log.py)
done.json        exists once the program has ended with exit code 0 in every rank
program/         the program's own folder, for its checkpoints
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer.checkpoint.durable import write_json, write_lines
from trainer.checkpoint.run_identity import DONE_FILE, read_marker
from trainer.config import RunConfig
from trainer.launch.exit_codes import FatalError
from trainer.program.progress import Point
from trainer.run_folder import METRICS_FILE

MOST_FILES = 10_000
CLOSE_SECONDS = 2.0
_LAST_BYTES = 64 << 10


def program_identity(config: RunConfig) -> str:
    """Return a text that differs for another program, so that its run counts as not finished."""
    program = config.program
    parts = [list(program.command), program.per, program.files]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def write_program_done(config: RunConfig, last: Point | None) -> None:
    """Record that the program has ended with exit code 0 in every rank."""
    marker = {
        "program": program_identity(config),
        "image": config.program.image,
        "step": last.step if last is not None else None,
        "loss": _finite(last.loss) if last is not None else None,
    }
    config.run_dir.mkdir(parents=True, exist_ok=True)
    write_json(config.run_dir / DONE_FILE, marker)


def read_program_done(config: RunConfig) -> dict[str, Any] | None:
    """Return the marker of the finished run; None if there is none.

    A marker of another program or image does not count.

    Raises:
        FatalError: the folder belongs to a run of our trainer, or the marker is damaged.
    """
    marker = read_marker(config)
    if marker is None:
        return None
    if "program" not in marker:
        raise FatalError(
            f"{config.run_dir} has a finished run of another kind: of disttrain's own trainer, "
            "and not of a program. Choose another runName"
        )
    # A marker of an earlier version of disttrain has no image, and counts for any image.
    image = marker.get("image", config.program.image)
    is_same = (marker["program"], image) == (program_identity(config), config.program.image)
    return marker if is_same else None


def newest_change(folder: Path) -> str:
    """Return when a file of the folder was last changed, as `growing_text`; empty if no file.

    If the folder has more than about MOST_FILES files, only some of them are looked at.
    """
    newest, seen = 0, 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                newest = max(newest, (Path(path) / name).stat().st_mtime_ns)
            except OSError:  # removed meanwhile, as old checkpoints are
                continue
            seen += 1
        if seen >= MOST_FILES:
            break
    return growing_text(newest)


def growing_text(number: int) -> str:
    """Return a number as a text that is greater than the texts of smaller numbers; empty for 0."""
    return f"{number:020d}" if number else ""


def last_step(run_dir: Path) -> int:
    """Return the last step in the metrics file of a run; 0 if there is none."""
    try:
        with (run_dir / METRICS_FILE).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))  # all nodes read it
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:  # there is no file, or the volume fails, which the start will report
        return 0
    return next((step for line in reversed(lines) if (step := _step_of(line)) is not None), 0)


class Curve:
    """Appends points to metrics.jsonl in a thread, so that a volume that hangs holds up nothing."""

    def __init__(self, run_dir: Path, world_size: int, say: Callable[[str], None]) -> None:
        """`say` gets a warning at the first error; the run goes on without its curve."""
        self._path, self._world_size, self._say = run_dir / METRICS_FILE, world_size, say
        self._waiting: queue.SimpleQueue[Sequence[Point]] = queue.SimpleQueue()
        self._has_begun = self._has_failed = False
        self._thread = threading.Thread(target=self._serve, name="curve", daemon=True)
        self._thread.start()

    def add(self, points: Sequence[Point]) -> None:
        """Append points. The first ones replace what an earlier start wrote from their step on."""
        if points:
            self._waiting.put(points)

    def close(self) -> None:
        """Write what is left; a volume that hangs is awaited only for `CLOSE_SECONDS`."""
        self._waiting.put(())
        self._thread.join(CLOSE_SECONDS)

    def _serve(self) -> None:
        while points := self._waiting.get():
            self._add(points)

    def _add(self, points: Sequence[Point]) -> None:
        try:
            if not self._has_begun:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._drop_from(points[0].step)
                self._has_begun = True
            with self._path.open("a") as file:
                file.write("".join(self._line(point) for point in points))
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                self._say(f"warning: {self._path} cannot be written ({error}); the run goes on")

    def _line(self, point: Point) -> str:
        # The loss is null if it is not finite, as in our trainer's records. If the program's line
        # has no loss, the record has none either.
        loss = {} if point.loss is None else {"loss": _finite(point.loss)}
        record = {
            "step": point.step,
            **loss,
            "world_size": self._world_size,
            "unix_time": round(point.unix_seconds, 3),
        }
        return json.dumps(record, allow_nan=False) + "\n"

    def _drop_from(self, step: int) -> None:
        def kept() -> Iterator[bytes]:  # one by one: a long run has millions
            for line in lines:
                number = _step_of(line.decode(errors="replace"))
                if number is not None and number < step:
                    yield line.rstrip(b"\n") + b"\n"

        with suppress(FileNotFoundError), self._path.open("rb") as lines:
            write_lines(self._path, kept())


def _finite(loss: float | None) -> float | None:
    return loss if loss is not None and math.isfinite(loss) else None


def _step_of(line: str) -> int | None:
    try:
        return int(dict(json.loads(line))["step"])
    except (ValueError, TypeError, KeyError):  # a crash has cut the line off
        return None
