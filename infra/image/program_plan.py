"""The image of a program of the user's own, built from a folder with a Dockerfile.

To all that delivers images it is one of dependencies, which the Dockerfile makes, with an empty
layer of code on top. So it is named, built, kept and removed as the trainer's image is.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from infra.image.oci import code_layer
from infra.image.plan import HASH_LENGTH, ImagePlan, check_repository

DOCKERFILE = "Dockerfile"
MOST_BYTES = 200_000_000
"""Of the folder. It is read at each preview, and data belongs on the volume."""
_LEFT_OUT = (".git", "__pycache__")


def program_repository(repository: str) -> str:
    """The repository of programs' images, beside that of the trainer's image."""
    return f"{repository}-program"


def plan_program_image(folder: Path, repository: str) -> ImagePlan:
    """Name the image after all files in the folder, what of them can be run, and their links.

    Args:
        folder: with a file `Dockerfile`; all of it is what the build may copy from.
        repository: of the trainer's image.

    Raises:
        ValueError: the repository is not fully qualified.
        OSError: a file cannot be read.
    """
    check_repository(repository)
    code = code_layer([])
    return ImagePlan(
        program_repository(repository),
        "",
        None,
        context_hash(folder),
        hashlib.sha256(code).hexdigest()[:HASH_LENGTH],
        code,
        context=folder,
    )


def context_hash(folder: Path) -> str:
    """Of all files that the build sees; a name may have any bytes."""
    digest = hashlib.sha256()
    for path in context_files(folder):
        if path.is_symlink():
            kind, content = "link", os.fsencode(path.readlink())
        else:
            kind, content = oct(mode_in_image(path) & 0o111), path.read_bytes()
        for text in (os.fsencode(path.relative_to(folder)), kind.encode(), content):
            digest.update(len(text).to_bytes(8, "big") + text)
    return digest.hexdigest()[:HASH_LENGTH]


def mode_in_image(path: Path) -> int:
    """The rights of a file in the image: the pods' user reads it, whatever the umask is here."""
    return 0o755 if path.stat().st_mode & 0o111 else 0o644


def context_files(folder: Path) -> Iterator[Path]:
    """Files and links that the build sees, sorted; folders of git and Python's caches are not."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if not set(inside) & set(_LEFT_OUT) and (path.is_symlink() or path.is_file()):
            yield path


def context_bytes(folder: Path) -> int:
    """How large all of these files are."""
    return sum(path.lstat().st_size for path in context_files(folder))
