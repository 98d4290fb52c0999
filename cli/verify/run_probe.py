"""Runs in a pod on the volume: prints the losses, the newest checkpoint and the measurements.

It is sent as text to `python3 -c`, so it imports nothing of this project. It prints one line of
JSON. The measurements were made at the start of the run.
"""

import hashlib
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

ATTEMPTS = 5
NAME = re.compile(r"step-\d{8,}")  # of a checkpoint's folder


def losses(run: Path) -> list[tuple[int, float]]:
    """Return the step and the loss of each record; an incomplete line is left out."""
    found = dict[int, float]()
    path = run / "metrics.jsonl"
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        try:
            record = json.loads(line)
            found[int(record["step"])] = float(record["loss"])
        except (ValueError, TypeError, KeyError):
            continue
    return sorted(found.items())


def smoke_test(run: Path) -> dict[str, Any] | None:
    """Return what trainer/parallel/smoke_test.py measured before the first step, or None."""
    path = run / "smoke-test.json"
    return json.loads(path.read_text()) if path.exists() else None


def volume_check(run: Path) -> dict[str, Any] | None:
    """Return what the nodes measured on the volume (trainer/volume/proof.py), or None."""
    path = run / "volume-check.json"
    return json.loads(path.read_text()) if path.exists() else None


def newest_checkpoint(run: Path) -> dict[str, Any] | None:
    """Return the step, size and age of the newest checkpoint, and why it is damaged.

    The result is None if there is no checkpoint. If a checkpoint is removed while it is read,
    because there is a newer one, the newer one is read instead.
    """
    problem, last = "", None
    for _ in range(ATTEMPTS):
        found = [path for path in run.glob("checkpoints/step-*") if NAME.fullmatch(path.name)]
        last = max(found, key=step_of, default=None)
        if last is None:
            return None
        try:
            return check(last)
        except FileNotFoundError as error:
            problem = f"{Path(error.filename).name} is missing"
            if last.exists():
                break
        except (ValueError, KeyError, TypeError) as error:
            problem = f"manifest.json is damaged: {error!r}"
            break
    return last and {"step": step_of(last), "problem": problem}


def step_of(folder: Path) -> int:
    """Return the step in the name of a checkpoint's folder."""
    return int(folder.name.rpartition("-")[2])


def check(folder: Path) -> dict[str, Any]:
    """Compare every file of a checkpoint with its size and sha256 in the manifest."""
    files = json.loads((folder / "manifest.json").read_text())["files"]
    problem = ""
    for name, entry in files.items():
        with (folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if (file.tell(), digest) != (entry["bytes"], entry["sha256"]):
                problem = f"{name} does not have the size and sha256 of the manifest"
    return {
        "step": step_of(folder),
        "bytes": sum(entry["bytes"] for entry in files.values()),
        "files": len(files),
        "age_seconds": max(0.0, time.time() - (folder / "manifest.json").stat().st_mtime),
        "problem": problem,
    }


def main() -> None:
    """Print the line of JSON."""
    run = Path(sys.argv[1])
    seen = {
        "losses": losses(run),
        "checkpoint": newest_checkpoint(run),
        "smoke_test": smoke_test(run),
        "volume_check": volume_check(run),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
