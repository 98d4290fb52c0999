"""Runs inside the pod of `fetch`: lists what a run has on the volume, and sends its bytes.

It is sent as text to `python3 -c`, so it uses only the standard library and imports nothing of
this project. It changes nothing. Commands:

    list RUN_DIR                        prints one line of JSON: the files and the checkpoints, or
                                        the existing runs if there is no such run
    verify CHECKPOINT_DIR               prints one line of JSON: why the checkpoint is damaged, if
                                        it is, and whether it exists
    send [FILE OFFSET COUNT]...         prints those bytes and nothing else; exit status 44: a file
                                        is gone
"""

import hashlib
import json
import os
import re
import stat
import sys
import time
from pathlib import Path

GONE = 44
CHECKPOINTS = "checkpoints"
STEP = r"step-\d{8,}"  # the name of a checkpoint's folder
PROGRAM = "program"  # the folder of a user's own program, which may use any names in it
LEFT_OUT = ("run.lock", "mirror.json")  # files for the training process and for the mirror's
NEEDED = ("state.json", "layout.json")
BLOCK_BYTES = 1 << 20
ALIVE_SECONDS = 5.0  # a reader that gets no byte for a minute takes the connection for dead


class Life:
    """Prints a dot to standard error now and then, so that the connection does not seem dead.

    One object is for all files together, because many small ones take as long as a large one.
    """

    def __init__(self) -> None:
        self._shown = time.monotonic()

    def show(self) -> None:
        """Print a dot if the last one is old enough."""
        if time.monotonic() - self._shown > ALIVE_SECONDS:
            self._shown = time.monotonic()
            print(".", end="", file=sys.stderr, flush=True)


_life = Life()


def contents(run: Path) -> dict[str, object]:
    """List what the run has; if there is no such run, list the names of the existing runs."""
    if not run.is_dir():
        names = sorted(path.name for path in run.parent.glob("[!.]*") if path.is_dir())
        return {"found": False, "runs": names}
    checkpoints = [checkpoint(run / CHECKPOINTS / name) for name in steps(run / CHECKPOINTS)]
    links: list[list[str]] = []
    found: dict[str, object] = {
        "found": True,
        "files": files(run, links),
        "links": links,
        "checkpoints": checkpoints,
    }
    return found if run.is_dir() else contents(run)  # the run may have been deleted meanwhile


def steps(root: Path) -> list[str]:
    """Return the names of the directories of checkpoints, the newest first."""
    try:
        names = [entry.name for entry in root.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [name for name in names if re.fullmatch(STEP, name)]
    return sorted(found, key=lambda name: int(name.removeprefix("step-")), reverse=True)


def checkpoint(directory: Path) -> dict[str, object]:
    """Return a checkpoint's manifest and validation loss, and why it is not complete.

    The contents of the other files are not read.
    """
    reason, manifest, val_loss = "", "", None
    try:
        reason = problem(directory, read=False)
        manifest = (directory / "manifest.json").read_text()
        value = json.loads((directory / "state.json").read_text()).get("val_loss")
        val_loss = value if isinstance(value, float | int) else None
    except (ValueError, AttributeError):
        reason = reason or "state.json is damaged"
    except OSError as error:
        reason = (
            reason or f"{Path(error.filename or directory).name} cannot be read: {error.strerror}"
        )
    return {
        "step": int(directory.name[5:]),
        "manifest": manifest,
        "val_loss": val_loss,
        "problem": reason,
    }


def problem(directory: Path, read: bool) -> str:
    """Return why this is no complete checkpoint by the trainer's rules; empty if it is one.

    The contents of the files are compared with the manifest only if `read` is true.
    """
    try:
        manifest = json.loads((directory / "manifest.json").read_text())
        entries = {str(name): dict(entry) for name, entry in manifest["files"].items()}
        for name in NEEDED:
            if name not in entries:
                return f"manifest.json does not list {name}"
        for name, entry in entries.items():
            size = (directory / name).stat().st_size
            if size != entry["bytes"]:
                return f"{name} has {size} bytes, manifest.json says {entry['bytes']}"
        for name, entry in entries.items():
            if read and digest(directory / name, entry["bytes"]) != entry["sha256"]:
                return f"{name} does not have the sha256 of manifest.json"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"manifest.json is damaged: {error!r}"
    return ""


def files(run: Path, links: list[list[str]] | None = None) -> list[dict[str, object]]:
    """List the run's files outside of its checkpoints, with their sizes and sha256.

    The size leaves out an incomplete line or record at the end of a file that is being written.
    Links are not followed. The name of each, and what it leads to, are added to `links`.
    """
    found: list[dict[str, object]] = []
    for folder, folders, names in os.walk(run):
        if Path(folder) == run:
            folders[:] = [name for name in folders if name != CHECKPOINTS]
            names = [name for name in names if name not in LEFT_OUT]
        is_of_program = Path(folder).relative_to(run).parts[:1] == (PROGRAM,)
        folders[:] = sorted(n for n in folders if is_of_program or not n.startswith("."))
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in sorted([*names, *linked]):
            path = Path(folder) / name
            if not is_of_program and (name.startswith(".") or ".partial-" in name):
                continue
            try:
                mode = path.lstat().st_mode
                if stat.S_ISLNK(mode) and links is not None:
                    links.append([str(path.relative_to(run)), str(path.readlink())])
                if stat.S_ISREG(mode):
                    size = whole_bytes(path)
                    sha256 = digest(path, size)
                    where = str(path.relative_to(run))
                    found.append({"name": where, "size": size, "sha256": sha256})
            except FileNotFoundError:
                continue  # removed since it was listed
    return found


def whole_bytes(path: Path) -> int:
    """Return how many bytes of a file that may be growing are complete lines or records."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if ".tfevents." in path.name:
            return whole_records(file.fileno(), size)
        if path.suffix != ".jsonl":
            return size
        while size:
            begin = max(0, size - BLOCK_BYTES)
            end = os.pread(file.fileno(), size - begin, begin).rfind(b"\n")
            if end >= 0:
                return begin + end + 1
            size = begin
    return 0


def whole_records(file: int, size: int) -> int:
    """Return how many bytes of a TensorBoard file are complete records.

    A record is the content's length (8 bytes), the length's checksum (4 bytes), the content, and
    the content's checksum (4 bytes).
    """
    offset = 0
    while offset + 16 <= size:
        length = int.from_bytes(os.pread(file, 8, offset), "little")
        if offset + length + 16 > size:
            break
        offset += length + 16
    return offset


def digest(path: Path, size: int) -> str:
    """Return the sha256 of the first `size` bytes, in hex digits."""
    _life.show()
    found, left = hashlib.sha256(), size
    with path.open("rb") as file:
        while left:
            block = file.read(min(left, BLOCK_BYTES))
            if not block:
                break
            found.update(block)
            left -= len(block)
            _life.show()
    return found.hexdigest()


def send(words: list[str]) -> int:
    """Write the bytes to standard output, and return the exit status."""
    for name, offset, count in zip(words[::3], words[1::3], words[2::3], strict=True):
        try:
            file = os.open(name, os.O_RDONLY)
        except FileNotFoundError:
            print(f"{name} is gone", file=sys.stderr)
            return GONE
        position, left = int(offset), int(count)
        while left:
            sent = os.sendfile(1, file, position, min(left, BLOCK_BYTES))
            if not sent:
                print(f"{name} ends at byte {position}", file=sys.stderr)
                return GONE
            position, left = position + sent, left - sent
        os.close(file)
    return 0


def main(words: list[str]) -> int:
    """Run one command, and return the exit status."""
    if words[0] == "send":
        return send(words[1:])
    directory = Path(words[1])
    if words[0] == "list":
        answer: object = contents(directory)
    else:
        answer = {"problem": problem(directory, read=True), "found": directory.is_dir()}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
