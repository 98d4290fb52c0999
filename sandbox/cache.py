"""The one cache folder: tools, virtualenvs, images, downloads, each under a content key."""

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """`$DISTTRAIN_CACHE`, else `~/.cache/disttrain`; made if missing."""
    path = Path(os.environ.get("DISTTRAIN_CACHE") or Path.home() / ".cache" / "disttrain")
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def content_key(*parts: str | bytes | Path) -> str:
    """Twelve hex digits over the parts; a Path stands for its content, a folder for its files."""
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
    """Hold the cache's lock `name`, so that two runs do not make the same thing twice."""
    path = cache_dir() / "locks" / name
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cached_folder(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder `<cache>/<kind>/<key>`, filled by `make(folder)` the first time only.

    A folder without its `.complete` mark is the rest of an interrupted run and is made anew in
    place: virtualenvs cannot be renamed.
    """
    folder = cache_dir() / kind / key
    with locked(f"{kind}-{key}"):
        if not (folder / ".complete").exists():
            remove_tree(folder)
            folder.mkdir(parents=True)
            make(folder)
            (folder / ".complete").touch()
    return folder


def remove_tree(folder: Path) -> None:
    """Remove a folder, read-only ones inside (Go's module cache) too; a missing one is fine."""
    if not folder.exists():
        return
    for directory, _, _ in os.walk(folder):
        path = Path(directory)
        path.chmod(path.stat().st_mode | stat.S_IRWXU)
    shutil.rmtree(folder)
