"""The folder on this machine that a run is copied to.

Its file `.disttrain-fetch.json` has the run's name, and for each file the sha256 of the contents
that `fetch` has written. Any other file belongs to the user and is never overwritten.
"""

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from cli.fetch.partial import PARTIAL
from cli.fetch.wanted import MANIFEST, Wanted
from infra.airgap.manifest import sha256_of
from infra.kube.say import first_of

RECORD = ".disttrain-fetch.json"


class Folder:
    """One run's folder on this machine.

    Args:
        root: the path of the folder, which need not exist yet.
        run: the name of the run.

    Raises:
        ValueError: it is no folder, its record cannot be read, or another run was fetched into it.
    """

    def __init__(self, root: Path, run: str) -> None:
        self.root, self._run = root, run
        if root.exists() and not root.is_dir():
            raise ValueError(f"--to {root}: it is no folder. Name a folder, which need not exist")
        self._ours = self._read_record()

    def plan(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Return the files that are not in the folder yet, or have other contents there.

        Raises:
            ValueError: the folder has files with these names that `fetch` has not written.
        """
        missing: list[Wanted] = []
        foreign: list[str] = []
        for each in wanted:
            target = self.root / each.name
            if not os.path.lexists(target):
                missing.append(each)
                continue
            found = sha256_of(target) if target.is_file() and not target.is_symlink() else ""
            if found == each.sha256:
                continue
            missing.append(each)
            if found and found in self._ours.get(each.name, []):
                self._ours[each.name] = [found]  # the others are of fetches that broke off
            else:
                foreign.append(each.name)
        if foreign:
            raise ValueError(
                f"{self.root} has {first_of(foreign, 3)} with other contents, which `./disttrain "
                "fetch` did not write (or which were changed since). Nothing was overwritten. "
                "Choose another folder by --to, or move them away"
            )
        return missing

    def note(self, missing: Sequence[Wanted]) -> None:
        """Make the folder, and record that these files are about to be written."""
        self.root.mkdir(parents=True, exist_ok=True)
        for each in missing:
            # The contents that `plan` has found stay in place until the new ones are complete, so
            # both are recorded as written by `fetch`.
            self._ours[each.name] = [*self._ours.get(each.name, [])[-1:], each.sha256]
        content = json.dumps({"run": self._run, "files": self._ours}, indent=1)
        write(self.root / RECORD, content)

    def withdraw(self, checkpoint: str) -> None:
        """Remove the manifest of a fetched checkpoint whose files are about to change.

        Without its manifest, no program takes the folder for a complete checkpoint.
        """
        (self.root / checkpoint / MANIFEST).unlink(missing_ok=True)

    def drop_unfinished(self) -> None:
        """Remove the files of checkpoints that never became complete in this folder."""
        folders = {
            name.rpartition("/")[0] for name in self._ours if name.startswith("checkpoints/")
        }
        for folder in sorted(folders):
            path = self.root / folder
            if not path.is_dir() or (path / MANIFEST).exists():
                continue
            for file in list(path.iterdir()):
                begin = file.name.partition(PARTIAL)[0]
                if f"{folder}/{begin}" in self._ours:
                    file.unlink()
            if not any(path.iterdir()):
                path.rmdir()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder while the block runs.

        If the folder was made for this fetch and is empty afterwards, it is removed.

        Raises:
            ValueError: another fetch is writing into this folder now.
        """
        was_there = self.root.exists()
        self.root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(descriptor)
                raise ValueError(f"{self.root}: another fetch is writing into it now") from None
        try:
            yield
        finally:
            if not was_there:
                with suppress(OSError):  # the folder is not empty: the fetch has copied something
                    self.root.rmdir()
            os.close(descriptor)

    def _read_record(self) -> dict[str, list[str]]:
        path = self.root / RECORD
        try:
            content = cast(Mapping[str, Any], json.loads(path.read_text()))
            run, files = str(content["run"]), dict(content["files"])
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{path} cannot be understood. Choose another folder by --to, or remove that file: "
                "what is in the folder then counts as yours and is not overwritten"
            ) from None
        if run != self._run:
            raise ValueError(
                f"--to {self.root}: it holds what was fetched of run {run!r}, not of "
                f"{self._run!r}. Choose another folder"
            )
        return {str(name): [str(each) for each in hashes] for name, hashes in files.items()}


def write(path: Path, content: str) -> None:
    """Write a small file atomically: other programs see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", newline="") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
