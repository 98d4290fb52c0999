"""Runs inside the pod of `runs`: describes the runs on the volume, and deletes a run.

It is sent as text to `python3 -c`, joined with its parts `pod_alive.py`, `pod_metrics.py`,
`pod_curves.py` and `pod_deletion.py` (cli/joined_program.py). So these files use only the standard
library and each other. Each command answers with one line of JSON:

    list RUNS_DIR [NAME...]     describes every folder there, or the folders with these names
    delete RUNS_DIR NAME        deletes a run, unless a training holds its lock
    curves RUNS_DIR NAME MOST   gives the values that the run has recorded at its steps, reduced to
                                the extremes of at most MOST stretches of steps
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cli.runs.pod_alive import alive
from cli.runs.pod_curves import curves
from cli.runs.pod_deletion import delete
from cli.runs.pod_metrics import metrics

STEP = r"step-\d{8,}"  # the name of a checkpoint's folder


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
