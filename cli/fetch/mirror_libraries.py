"""Finds the libraries that read a mirror.

The trainer uses them, and Pulumi's virtual environment lacks them. A folder of their own keeps them
out of that environment, because the engine lists every package of it at each preview.
"""

import importlib
import importlib.util
import re
import sys
from pathlib import Path

from cli.fetch.mirror_settings import is_s3

PROJECT = Path(__file__).resolve().parents[2]
REQUIREMENTS = PROJECT / "trainer" / "requirements.txt"


def libraries_folder() -> Path:
    """Return the folder for the libraries.

    Its name has the version of Python, because compiled packages work with one version only.
    """
    major, minor = sys.version_info[:2]
    return PROJECT / "build" / f"mirror-py{major}.{minor}"


def need_libraries(url: str, folder: Path) -> None:
    """Make the libraries that read this mirror importable.

    Args:
        url: the address of the mirror.
        folder: the folder into which the user may have installed them (`libraries_folder`).

    Raises:
        ValueError: a library is missing; the text has the command that installs it.
    """
    names = ["fsspec", "s3fs"] if is_s3(url) else ["fsspec"]
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.append(str(folder))  # at the end, so that the virtual environment's packages win
        importlib.invalidate_caches()
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        pins = " ".join(_pins(names, REQUIREMENTS.read_text()))
        raise ValueError(
            f"--from {url}: this Python has no {' and no '.join(missing)}, by which a mirror is "
            f"read. Install that once, beside Pulumi's packages: {sys.executable} -m pip install "
            f"--target {folder} {pins}"
        )


def _pins(names: list[str], requirements: str) -> list[str]:
    """Return the requirements of these packages with the trainer's versions.

    This function is pure.
    """
    return [
        found[0] if (found := re.search(rf"^{name}==\S+", requirements, re.MULTILINE)) else name
        for name in names
    ]
