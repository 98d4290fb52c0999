"""Writes a bundle into a folder. Files that are already there and intact are kept.

Until the bundle is complete, its list is called `unfinished.json` and there is no manifest. So an
interrupted bundle cannot be mistaken for a complete one.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.airgap.manifest import (
    CHECKSUM,
    MANIFEST,
    Entry,
    Manifest,
    damage,
    parse_manifest,
    replace_text,
    sha256_of,
    write_manifest,
)
from infra.command_line import Say

UNFINISHED = "unfinished.json"
SCRATCH = ".partial"
Fill = Callable[[Path], str]


class BundleWriter:
    """Writes one bundle into one folder."""

    def __init__(self, folder: Path, architecture: str, say: Say) -> None:
        """Read the list that an earlier, perhaps interrupted packing has left in the folder.

        Raises:
            ValueError: the list is for another architecture, or cannot be read.
        """
        self.folder = folder
        self._architecture = architecture
        self._say = say
        self._entries: list[Entry] = []
        self._known = self._earlier()

    def add(self, purpose: str, version: str, fill: Fill, sha256: str = "") -> tuple[Entry, ...]:
        """Add the files of a purpose and version. They are not made again if they are intact.

        Args:
            purpose: what the files are for (needs.py).
            version: a text that identifies their content.
            fill: writes the files into a given folder, under their names in the bundle, and returns
                where they came from.
            sha256: the checksum that an existing file must have, so that it is not made again;
                empty: the version is enough.
        """
        entries = [e for e in self._known if (e.purpose, e.version) == (purpose, version)]
        is_other = sha256 != "" and [entry.sha256 for entry in entries] != [sha256]
        if entries and not is_other and not damage(self.folder, entries):
            self._say(f"{purpose} {version}: already there")
        else:
            self._say(f"{purpose} {version}")
            entries = self._make(purpose, version, fill)
        self._entries += entries
        return tuple(entries)

    @property
    def purposes(self) -> set[str]:
        """The purposes of the files that an earlier packing has left."""
        return {entry.purpose for entry in self._known}

    def finish(self, left_out: tuple[str, ...]) -> Manifest:
        """Remove files of an earlier packing that are no longer needed, and write the manifest."""
        manifest = Manifest(self._architecture, left_out, tuple(self._entries))
        names = {entry.name for entry in self._entries}
        for old in self._known:
            if old.name not in names:
                (self.folder / old.name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / SCRATCH, ignore_errors=True)
        write_manifest(self.folder, manifest)
        (self.folder / UNFINISHED).unlink(missing_ok=True)
        return manifest

    def _make(self, purpose: str, version: str, fill: Fill) -> list[Entry]:
        self._note_unfinished()
        scratch = self.folder / SCRATCH
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        source = fill(scratch)
        entries: list[Entry] = []
        for path in sorted(path for path in scratch.rglob("*") if path.is_file()):
            name = path.relative_to(scratch).as_posix()
            size, sha256 = path.stat().st_size, sha256_of(path)
            entries.append(Entry(name, purpose, version, size, sha256, source))
        names = {entry.name for entry in entries}
        self._known = [e for e in self._known if e.name not in names] + entries
        self._note_unfinished()  # first: a file that is in no list would never be removed
        for entry in entries:
            target = self.folder / entry.name
            target.parent.mkdir(parents=True, exist_ok=True)
            (scratch / entry.name).replace(target)
        shutil.rmtree(scratch)
        return entries

    def _note_unfinished(self) -> None:
        known = Manifest(self._architecture, (), tuple(self._known))
        replace_text(self.folder / UNFINISHED, known.to_json())
        for name in (MANIFEST, CHECKSUM):
            (self.folder / name).unlink(missing_ok=True)

    def _earlier(self) -> list[Entry]:
        for name in (MANIFEST, UNFINISHED):
            if (self.folder / name).exists():
                earlier = parse_manifest(self.folder / name, (self.folder / name).read_bytes())
                if earlier.architecture != self._architecture:
                    raise ValueError(
                        f"{self.folder} holds a bundle for {earlier.architecture}, and this "
                        f"machine packs for {self._architecture}; choose another --output"
                    )
                return list(earlier.files)
        return []


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a lock, so that no other process packs into this folder at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
