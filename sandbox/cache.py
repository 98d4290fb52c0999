"""The cache folder. Each tool, virtualenv, image and download lies under a hash of its inputs."""

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """The folder `$DISTTRAIN_CACHE`, else `~/.cache/disttrain`; it is made if it is missing."""
    path = Path(os.environ.get("DISTTRAIN_CACHE") or Path.home() / ".cache" / "disttrain")
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def content_key(*parts: str | bytes | Path) -> str:
    """Twelve hex digits of a hash over the parts.

    A Path stands for the content of its file, or for the names and contents of a folder's files.
    """
    digest = hashlib.sha256()
    for part in parts:
        for chunk in _chunks(part):
            digest.update(len(chunk).to_bytes(8, "big") + chunk)
    return digest.hexdigest()[:12]


def _chunks(part: str | bytes | Path) -> Iterator[bytes]:
    if isinstance(part, Path) and part.is_dir():
        for file in sorted(p for p in part.rglob("*") if p.is_file()):
            yield str(file.relative_to(part)).encode()
            yield file.read_bytes()
    elif isinstance(part, Path):
        yield part.read_bytes()
    else:
        yield part.encode() if isinstance(part, str) else part


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock `name`, so that two processes do not make the same thing at once."""
    path = cache_dir() / "locks" / name
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cached_folder(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder `<cache>/<kind>/<key>`, which `make(folder)` fills the first time.

    A folder without the file `.complete` was left by an interrupted process, so it is emptied and
    filled again. It is filled in its final place, because virtualenvs cannot be renamed.
    """
    folder = cache_dir() / kind / key
    with locked(f"{kind}-{key}"):
        if not is_cached(kind, key):
            remove_tree(folder)
            folder.mkdir(parents=True)
            make(folder)
            (folder / ".complete").touch()
    return folder


def is_cached(kind: str, key: str) -> bool:
    """Whether `cached_folder` has made the folder already."""
    return (cache_dir() / kind / key / ".complete").exists()


def remove_tree(folder: Path) -> None:
    """Remove a folder if it is there, with read-only folders in it, such as Go's module cache."""
    if not folder.exists():
        return
    for directory, _, _ in os.walk(folder):
        path = Path(directory)
        path.chmod(path.stat().st_mode | stat.S_IRWXU)
    shutil.rmtree(folder)
