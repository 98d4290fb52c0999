"""Plans the image of a user's program, which is built from a folder with a Dockerfile.

The result of the Dockerfile is treated as an image of dependencies, with an empty layer of code on
top. So this image is named, built, kept and removed as the trainer's image is.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from infra.image.oci import code_layer
from infra.image.plan import HASH_LENGTH, ImagePlan, check_repository

DOCKERFILE = "Dockerfile"
MOST_BYTES = 200_000_000
"""The largest size of the folder. It is read at each preview, and data belongs on the volume."""
_LEFT_OUT = (".git", "__pycache__")


def program_repository(repository: str) -> str:
    """Return the repository of programs' images; `repository` is that of the trainer's image."""
    return f"{repository}-program"


def plan_program_image(folder: Path, repository: str) -> ImagePlan:
    """Name the image after the files in the folder, their rights to be executed, and the links.

    Args:
        folder: folder with a file `Dockerfile`. The build can copy files from it.
        repository: repository of the trainer's image.

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
    """Return the hash of all files and links that the build sees; names may have any bytes."""
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
    """Return the rights of a file in the image.

    They do not depend on the umask of this machine, so that the pods' user can read the file.
    """
    return 0o755 if path.stat().st_mode & 0o111 else 0o644


def context_files(folder: Path) -> Iterator[Path]:
    """Yield the files and links that the build sees, sorted, without git's and Python's folders."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if not set(inside) & set(_LEFT_OUT) and (path.is_symlink() or path.is_file()):
            yield path


def context_bytes(folder: Path) -> int:
    """Return the size in bytes of all files and links that the build sees."""
    return sum(path.lstat().st_size for path in context_files(folder))
