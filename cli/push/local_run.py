"""Reads a run's folder on this machine: lists its files, and checks that it is complete."""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cli.fetch import pod_program
from cli.fetch.partial import PARTIAL
from cli.printable import is_text, printable

CONFIG = "run.yaml"
_CHECKPOINT = re.compile(rf"{pod_program.CHECKPOINTS}/{pod_program.STEP}")


@dataclass(frozen=True)
class LocalFile:
    """A file of the run.

    `name` is its path in the run's folder, with `/`; `size` is in bytes; `sha256` is in hex digits.
    """

    name: str
    size: int
    sha256: str


def read_run(folder: Path) -> list[LocalFile]:
    """Return all files of the run, verified; a checkpoint's manifest comes after all other files.

    Hidden files, the lock of the training process and the mirror's file are left out, and so is
    what a crash has left beside or in the checkpoints.

    Raises:
        ValueError: it is not the folder of a complete run; the text has the reason.
    """
    if not folder.is_dir():
        raise ValueError(f"FOLDER: {folder} cannot be pushed: there is no such folder")
    names = sorted(_names(folder), key=lambda name: (name.endswith("/manifest.json"), name))
    if CONFIG not in names:
        raise ValueError(
            f"FOLDER: {folder} cannot be pushed: it has no {CONFIG}, so it is no run's folder. "
            "Name a folder that `./disttrain fetch` has made, such as runs/dev"
        )
    checkpoints = sorted({name.rpartition("/")[0] for name in names if _CHECKPOINT.match(name)})
    if not checkpoints:
        raise ValueError(
            f"FOLDER: {folder} cannot be pushed: it has no checkpoint. Fetch the run with one"
        )
    known: dict[str, str] = {}
    for checkpoint in checkpoints:
        if reason := pod_program.problem(folder / checkpoint, read=True):
            raise ValueError(f"FOLDER: {folder} cannot be pushed: {checkpoint}: {reason}")
        entries = json.loads((folder / checkpoint / "manifest.json").read_text())["files"]
        known |= {f"{checkpoint}/{name}": str(e["sha256"]) for name, e in entries.items()}
    found = [_local_file(folder, name, known.get(name, "")) for name in names]
    return [each for each in found if not _CHECKPOINT.match(each.name) or _belongs(each, known)]


def key_of(files: list[LocalFile]) -> str:
    """Return a hash of all names and contents, as 12 hex digits. This function is pure."""
    lines = "".join(f"{each.sha256} {each.size} {each.name}\n" for each in sorted_by_name(files))
    return hashlib.sha256(lines.encode()).hexdigest()[:12]


def sorted_by_name(files: list[LocalFile]) -> list[LocalFile]:
    """Return the files in the order of their names. This function is pure."""
    return sorted(files, key=lambda each: each.name)


def _belongs(file: LocalFile, known: dict[str, str]) -> bool:
    """Whether a file in a checkpoint's folder is the manifest, or is listed in it."""
    return file.name in known or file.name.endswith("/manifest.json")


def _names(folder: Path) -> Iterator[str]:
    for where, folders, names in os.walk(folder):
        inside = Path(where).relative_to(folder)
        folders[:] = [name for name in folders if not name.startswith(".")]
        if inside == Path("checkpoints"):
            folders[:] = [name for name in folders if re.fullmatch(pod_program.STEP, name)]
            names = []
        if inside == Path():
            names = [name for name in names if name not in pod_program.LEFT_OUT]
        for name in folders:
            _refuse_link(folder, Path(where) / name)
        for name in names:
            path = Path(where) / name
            if name.startswith("."):
                continue
            if PARTIAL in name:
                raise ValueError(
                    f"FOLDER: {folder} cannot be pushed: {path.relative_to(folder)} shows that a "
                    "fetch into it has not ended. Run that fetch again first"
                )
            _refuse_link(folder, path)
            if not is_text(where_in_run := str(path.relative_to(folder))):
                raise ValueError(
                    f"FOLDER: {folder} cannot be pushed: the name of {printable(where_in_run)} is "
                    "no text in UTF-8. Rename it"
                )
            if not path.is_file():
                raise ValueError(
                    f"FOLDER: {folder} cannot be pushed: {path.relative_to(folder)} is no plain "
                    "file but a pipe, a socket or a device. Move it away"
                )
            yield path.relative_to(folder).as_posix()


def _refuse_link(folder: Path, path: Path) -> None:
    """Raise ValueError for a link: the file that it leads to would be missing on the volume."""
    if path.is_symlink():
        raise ValueError(
            f"FOLDER: {folder} cannot be pushed: {path.relative_to(folder)} is a link. Put what it "
            "leads to there"
        )


def _local_file(folder: Path, name: str, sha256: str) -> LocalFile:
    with (folder / name).open("rb") as file:
        found = sha256 or hashlib.file_digest(file, "sha256").hexdigest()
        return LocalFile(name, file.seek(0, os.SEEK_END), found)
