"""Reads `program.files`: the files of a program, which a ConfigMap brings to the pods."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path, PurePosixPath

from infra.settings.local_path import local_path
from infra.settings.reader import Reader

KEY = "program.files"
MOST_BYTES = 700_000
"""The most bytes of all files together. A ConfigMap holds 1 MiB, and content that is not text
becomes a third larger in it."""
MOST_FILES = 500
MOST_COUNTED = 20_000
"""The most files that are counted, because a link may lead to a folder with millions of files."""
HINT = "Set the path of a file or of a folder on this machine"
_LEFT_OUT = ("__pycache__",)  # Names that begin with a point are left out, too.
_SMALLER = (
    "Name a folder that contains only the program, and put data on the volume or larger code "
    "into the image (imageBase)"
)


class _LoopError(Exception):
    """A link leads to a folder that contains the link. The text is the link's path."""


def read_files(reader: Reader, text: str) -> dict[str, bytes]:
    """Return the content of a file, or of all files of a folder by their paths in the folder.

    Args:
        reader: collects the problems that are found.
        text: value of `program.files`.
    """
    root = local_path(text)
    try:
        found = {root.name: root} if root.is_file() else _files_below(root)
        sizes = {path: file.stat().st_size for path, file in found.items()}
        if not found:
            reader.problem(KEY, str(root), "there is no file", HINT)
            return {}
        if sum(sizes.values()) > MOST_BYTES or len(sizes) > MOST_FILES:
            reader.problem(KEY, str(root), _too_much(sizes), _SMALLER)
            return {}
        return {path: file.read_bytes() for path, file in sorted(found.items())}
    except _LoopError as link:
        reason = f"{link} in it is a link to a folder that the link is in, so it has no end"
        reader.problem(KEY, str(root), reason, "Remove that link")
    except OSError as error:
        reader.problem(KEY, str(root), f"it cannot be read ({error.strerror})", HINT)
    return {}


def _files_below(root: Path) -> dict[str, Path]:
    """Return the files of a folder by their paths in it, at most MOST_COUNTED of them."""
    files = islice(_files_in(root, ()), MOST_COUNTED) if root.is_dir() else ()
    return {str(PurePosixPath(file.relative_to(root))): file for file in files}


def _files_in(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the files of a folder and of the folders below it. Links are followed.

    Args:
        folder: the folder.
        above: real paths of the folders above `folder`.

    Raises:
        _LoopError: a link leads to one of the folders above it.
        OSError: a folder cannot be read.
    """
    real = folder.resolve()
    if real in above:
        raise _LoopError(folder)
    for file in sorted(folder.iterdir()):
        if file.name.startswith(".") or file.name in _LEFT_OUT:
            continue
        if file.is_dir():
            yield from _files_in(file, (*above, real))
        elif file.is_file():
            yield file


def _too_much(sizes: Mapping[str, int]) -> str:
    largest = sorted(sizes, key=lambda path: sizes[path], reverse=True)[:3]
    named = ", ".join(f"{path} with {sizes[path]:,} bytes" for path in largest)
    more = " or more" if len(sizes) == MOST_COUNTED else ""
    return (
        f"it has {len(sizes)}{more} files with {sum(sizes.values()):,} bytes, and the ConfigMap "
        f"that takes them to the pods holds {MOST_FILES} with {MOST_BYTES:,}; the largest: {named}"
    )
