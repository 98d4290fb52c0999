"""Runs inside the pod of `runs`: describes the runs on the volume, and deletes a run.

It is sent as text to `python3 -c`, so it uses only the standard library and imports nothing of
this project. Each command answers with one line of JSON:

    list RUNS_DIR [NAME...]     describes every folder there, or the folders with these names
    delete RUNS_DIR NAME        deletes a run, unless a training holds its lock
    curves RUNS_DIR NAME MOST   gives the values that the run has recorded at its steps, reduced to
                                the extremes of at most MOST stretches of steps
"""

import fcntl
import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

METRICS = ("step", "loss", "val_loss", "tokens", "tokens_per_second", "world_size")
STEP = r"step-\d{8,}"  # the name of a checkpoint's folder
CURVES = ("loss", "val_loss", "tokens_per_second")
ALIVE_SECONDS = 5.0  # a reader that gets no byte for a minute takes the connection for dead


def runs(root: Path, names: list[str]) -> dict[str, object]:
    """Describe each run, and the free space.

    `now` in the answer is this machine's time, with which the reader computes ages.
    """
    there = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    chosen = [name for name in there if not names or name in names]
    found: list[dict[str, object]] = []
    for name in chosen:
        print(".", end="", file=sys.stderr, flush=True)
        run = one_run(root / name)
        if os.path.lexists(root / name):  # if not, the run was deleted meanwhile
            found.append(run)
    return {"now": time.time(), "runs": found, **room(root)}


def room(root: Path) -> dict[str, object]:
    """Return how many bytes a pod may still write, and the volume's size; None if not known."""
    try:
        found = os.statvfs(root)
    except OSError:
        return {"free_bytes": None, "total_bytes": None}
    unit = found.f_frsize
    return {"free_bytes": found.f_bavail * unit, "total_bytes": found.f_blocks * unit}


def one_run(run: Path) -> dict[str, object]:
    """Describe one run with the texts and numbers in its files; None if a file has none.

    `problem` in the answer says what could not be read; it is empty if everything was read.
    """
    problems: list[str] = []

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            where = os.path.relpath(error.filename or run, run.parent)
            problems.append(f"{error.strerror}: {where}")

    step = saved_at = None
    config, is_done = "", False
    try:
        os.scandir(run).close()
        is_done = (run / "done.json").exists()
        config = (run / "run.yaml").read_text()
    except OSError as error:
        note(error)
    except ValueError:
        pass  # the file run.yaml is no text
    try:
        step, saved_at = newest_checkpoint(run / "checkpoints")
    except OSError as error:
        note(error)
    size = size_of(run, note)
    return {
        "name": run.name,
        "config": config,
        "bytes": size,
        "checkpoint_step": step,
        "checkpoint_time": saved_at,
        "is_done": is_done,
        "problem": problems[0] if problems else "",
        **metrics(run / "metrics.jsonl"),
    }


def newest_checkpoint(root: Path) -> tuple[int | None, float | None]:
    """Return the step and the time of the newest checkpoint whose files have the right sizes.

    The manifest says the sizes. Both values are None if there is no such checkpoint.
    Raises OSError if the folder exists and cannot be read.
    """
    try:
        names = [entry.name for entry in root.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    found = [name for name in names if re.fullmatch(STEP, name)]
    for name in sorted(found, key=lambda name: int(name.removeprefix("step-")), reverse=True):
        manifest = root / name / "manifest.json"
        try:
            entries = json.loads(manifest.read_text())["files"]
            if all((root / name / n).stat().st_size == e["bytes"] for n, e in entries.items()):
                return int(name[5:]), manifest.stat().st_mtime
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return None, None


def metrics(path: Path) -> dict[str, object]:
    """Return the last values in a metrics file, and the lowest validation loss."""
    last: dict[str, float | int | None] = dict.fromkeys(METRICS)
    lowest: tuple[float, int] | None = None
    for step, record in records(path):
        values = {name: number(record.get(name)) for name in METRICS}
        val_loss = values["val_loss"]
        if val_loss is not None and (lowest is None or val_loss < lowest[0]):
            lowest = val_loss, step
        last.update({name: value for name, value in values.items() if value is not None})
    best, best_step = lowest or (None, None)
    return {**last, "lowest_val_loss": best, "lowest_val_loss_step": best_step}


def number(value: object) -> float | int | None:
    """Return the value if it is a finite number, else None; the file may contain anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each record of a metrics file with its step; nothing if there is no file."""
    told = time.monotonic()
    try:
        with path.open("rb") as file:
            for line in file:
                told = alive(told)
                try:
                    record = dict(json.loads(line))
                    yield int(record["step"]), record
                except (ValueError, TypeError, KeyError, OverflowError):
                    continue  # the last line may be incomplete while the run writes it
    except OSError:
        return


def curves(path: Path, most: int) -> dict[str, list[tuple[int, float]]]:
    """Return (step, value) pairs for each name in CURVES, in the order of the steps.

    The pairs are divided into at most `most` stretches, and only the lowest and the highest value
    of each are kept. So a spike stays visible, however long the run is.
    """
    found = {name: Curve(most) for name in CURVES}
    for step, record in records(path):
        for name, curve in found.items():
            value = number(record.get(name))
            if value is not None:
                curve.add((step, value))
    return {name: thinned(curve.pairs(), most) for name, curve in found.items()}


class Curve:
    """Keeps the lowest and the highest of the (step, value) pairs of each stretch of steps.

    The stretches become longer as more pairs come, so that there are never more than `4 * most`.
    So the memory does not grow with the length of the run. The pairs may come in any order.
    """

    def __init__(self, most: int) -> None:
        self._most, self._length = 4 * most, 1  # the length of a stretch is in steps
        # By the number of a stretch: its lowest and its highest pair.
        self._stretches: dict[int, list[tuple[int, float]]] = {}
        self._ends: list[tuple[int, float]] = []  # the first pair and the last one

    def add(self, pair: tuple[int, float]) -> None:
        """Take a pair."""
        if not self._ends:
            self._ends = [pair, pair]
        elif pair < self._ends[0]:
            self._ends[0] = pair
        elif pair > self._ends[1]:
            self._ends[1] = pair
        self._keep(pair)
        if len(self._stretches) > self._most:
            before, self._stretches = self._stretches, {}
            self._length *= 2
            for low, high in before.values():
                self._keep(low)
                self._keep(high)

    def _keep(self, pair: tuple[int, float]) -> None:
        number = pair[0] // self._length
        stretch = self._stretches.get(number)
        if stretch is None:
            self._stretches[number] = [pair, pair]
        elif pair[1] < stretch[0][1]:
            stretch[0] = pair
        elif pair[1] > stretch[1][1]:
            stretch[1] = pair

    def pairs(self) -> list[tuple[int, float]]:
        """Return the pairs that were kept, in the order of the steps."""
        return sorted({*self._ends, *(pair for both in self._stretches.values() for pair in both)})


def thinned(pairs: list[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """Keep the first and the last pair, and the lowest and the highest pair of each stretch."""
    if len(pairs) <= 2 * most:
        return pairs
    kept = {pairs[0], pairs[-1]}
    for number in range(most):
        begin, end = (len(pairs) * n // most for n in (number, number + 1))
        stretch = pairs[begin:end]
        kept |= {min(stretch, key=value_of), max(stretch, key=value_of)}
    return sorted(kept)


def value_of(pair: tuple[int, float]) -> float:
    """Return the value of a (step, value) pair."""
    return pair[1]


def size_of(folder: Path, note: Callable[[OSError], None]) -> int:
    """Return the size of all files in a folder and its subfolders, in bytes.

    `note` is called with each error about something that cannot be read.
    """
    size, told = 0, time.monotonic()
    for where, _, names in os.walk(folder, onerror=note):
        for name in names:
            try:
                size += os.lstat(Path(where) / name).st_size
            except OSError as error:
                note(error)
        told = alive(told)
    return size


def alive(told: float) -> float:
    """Print a dot if the last one is old enough, so that the connection does not seem dead.

    `told` is when the last dot was printed. Returns when the last dot is printed now.
    """
    if time.monotonic() - told < ALIVE_SECONDS:
        return told
    print(".", end="", file=sys.stderr, flush=True)
    return time.monotonic()


def delete(root: Path, name: str) -> dict[str, object]:
    """Delete one run. It is renamed first, so that nobody sees a run that is half deleted."""
    run = root / name
    for left in root.glob(f".deleted-{'?' * 12}-{name}"):  # what an interrupted deletion has left
        shutil.rmtree(left)
    if run.is_symlink():
        return {"state": "link"}
    if not run.is_dir():
        return {"state": "missing"}  # an earlier call may have deleted it, and its answer was lost
    if is_locked(run / "run.lock"):
        return {"state": "locked"}
    if closed := first_closed(run):
        return {"state": "closed", "path": closed}
    doomed = run
    if not name.startswith(".deleted-"):  # what an earlier deletion has left keeps its name
        doomed = root / f".deleted-{os.urandom(6).hex()}-{name}"
        run.rename(doomed)
    told = time.monotonic()
    for where, _, names in os.walk(doomed, topdown=False):
        for file in names:
            (Path(where) / file).unlink()
            told = alive(told)
    shutil.rmtree(doomed)
    return {"state": "deleted"}


def first_closed(run: Path) -> str:
    """Return the first folder of a run that prevents its deletion; empty if there is none.

    Such a folder cannot be read, or these rights do not suffice to remove files from it.
    """
    told, closed = time.monotonic(), list[str]()
    for where, folders, names in os.walk(run, onerror=lambda e: closed.append(str(e.filename))):
        told = alive(told)
        if (folders or names) and not os.access(where, os.W_OK | os.X_OK):
            closed.append(where)
        if closed:
            break
    return closed[0] if closed else ""


def is_locked(path: Path) -> bool:
    """Whether a training holds the lock of its run (trainer/checkpoint/run_lock.py).

    The answer is no if the file system has no locks.
    """
    try:
        with path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # no such file, or a file system without locks
    return False


def main(words: list[str]) -> None:
    """Run one command."""
    root = Path(words[1])
    if words[0] == "list":
        answer = runs(root, words[2:])
    elif words[0] == "curves":
        answer: object = curves(root / words[2] / "metrics.jsonl", int(words[3]))
    else:
        answer = delete(root, words[2])
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
