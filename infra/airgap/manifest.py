"""Writes and reads the list of a bundle's files with their checksums, and checks the files."""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePosixPath

MANIFEST = "manifest.json"
CHECKSUM = "manifest.json.sha256"  # in the form of sha256sum
FORMAT = 1


@dataclass(frozen=True, order=True)
class Entry:
    """One file: its path in the bundle, its purpose (`needs.py`), and the version of its content.

    `source` says where it came from.
    """

    name: str
    purpose: str
    version: str
    size_bytes: int
    sha256: str
    source: str


@dataclass(frozen=True)
class Manifest:
    """The content of a bundle. `left_out` are the parts that were left out on purpose."""

    architecture: str
    left_out: tuple[str, ...]
    files: tuple[Entry, ...]

    def to_json(self) -> str:
        """Return the manifest as JSON. The same content always gives the same text."""
        content = {
            "format": FORMAT,
            "architecture": self.architecture,
            "left_out": sorted(self.left_out),
            "files": [asdict(entry) for entry in sorted(self.files)],
        }
        return json.dumps(content, indent=1) + "\n"

    @property
    def sha256(self) -> str:
        """The sha256 of the JSON text."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def of(self, purpose: str, version: str | None = None) -> tuple[Entry, ...]:
        """Return the files with a purpose and, if it is given, a version."""
        return tuple(
            entry
            for entry in self.files
            if entry.purpose == purpose and version in (None, entry.version)
        )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the checksum and then the manifest. At any moment each file is complete or absent."""
    replace_text(folder / CHECKSUM, f"{manifest.sha256}  {MANIFEST}\n")
    replace_text(folder / MANIFEST, manifest.to_json())


def read_manifest(folder: Path, expected_sha256: str = "") -> Manifest:
    """Read the manifest of a bundle.

    Args:
        folder: folder of the bundle.
        expected_sha256: checksum of the manifest, which was noted elsewhere; empty: the manifest is
            only compared with the checksum file in the bundle.

    Raises:
        ValueError: the manifest is absent, damaged, or not the expected one.
    """
    try:
        text = (folder / MANIFEST).read_bytes()
        noted = (folder / CHECKSUM).read_text().split()[0]
    except (OSError, UnicodeDecodeError, IndexError) as error:
        reason = f"{CHECKSUM} holds no checksum"
        if isinstance(error, OSError):
            reason = f"{Path(error.filename).name}: {error.strerror}"
        raise ValueError(
            f"{folder} is not a complete bundle ({reason}); run `make bundle` to make one"
        ) from None
    got = hashlib.sha256(text).hexdigest()
    for expected, who in ((noted, f"as {CHECKSUM} says"), (expected_sha256, "as expected")):
        if expected and got != expected:
            raise ValueError(f"{folder / MANIFEST}: sha256 is {got}, not {expected} {who}")
    return parse_manifest(folder / MANIFEST, text)


def parse_manifest(path: Path, text: bytes) -> Manifest:
    """Read a manifest from its text. Errors name `path`.

    Raises:
        ValueError: the text is not a manifest, or has a format that this program does not know.
    """
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, and this program knows {FORMAT}")
        files = tuple(Entry(**entry) for entry in content["files"])
        if bad := [entry.name for entry in files if not is_plain(entry.name)]:
            raise ValueError(f"{bad[0]!r} is not a path inside the bundle")
        return Manifest(content["architecture"], tuple(content["left_out"]), files)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from None


def is_plain(name: str) -> bool:
    """Whether a name is a path of ordinary characters that stays inside the bundle."""
    parts = PurePosixPath(name).parts
    return re.fullmatch(r"[\w.@+/-]+", name) is not None and not {"..", "/"} & set(parts)


def missing_files(folder: Path, manifest: Manifest) -> list[str]:
    """Return the problems of files that are absent or have a wrong size. No content is read."""
    return [problem for entry in manifest.files if (problem := _wrong_size(folder, entry))]


def damage(folder: Path, entries: Iterable[Entry]) -> list[str]:
    """Return the problems of files whose content differs. Every byte is read, on all cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        found = threads.map(partial(_damage, folder), entries)
        return [problem for problem in found if problem]


def _wrong_size(folder: Path, entry: Entry) -> str:
    try:
        size = (folder / entry.name).stat().st_size
    except OSError as error:
        return f"{entry.name}: {error.strerror}"
    if size != entry.size_bytes:
        return f"{entry.name}: {size} bytes, not {entry.size_bytes}"
    return ""


def _damage(folder: Path, entry: Entry) -> str:
    try:
        got = sha256_of(folder / entry.name)
    except OSError as error:
        return f"{entry.name}: {error.strerror}"
    return "" if got == entry.sha256 else f"{entry.name}: sha256 is {got}, not {entry.sha256}"


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_text(path: Path, text: str) -> None:
    """Replace a file's content. At any moment the file has either the old or the new content."""
    new = path.with_name(f"{path.name}.partial")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
