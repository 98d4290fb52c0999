"""The libraries that read a mirror. They are the trainer's, and Pulumi's virtualenv lacks them.

They are looked for in a folder of their own, too: the engine lists every package of that virtualenv
at each preview.
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
    """Compiled packages serve one version of Python alone."""
    major, minor = sys.version_info[:2]
    return PROJECT / "build" / f"mirror-py{major}.{minor}"


def need_libraries(url: str, folder: Path) -> None:
    """Make the libraries for such a URL ready to be imported.

    Args:
        url: of the mirror.
        folder: where they may have been installed for this purpose; see `libraries_folder`.

    Raises:
        ValueError: they are not there; with the command that installs them.
    """
    names = ["fsspec", "s3fs"] if is_s3(url) else ["fsspec"]
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.append(str(folder))  # last: what Pulumi's virtualenv has is taken from there
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
    """The trainer's versions of these packages. Pure."""
    return [
        found[0] if (found := re.search(rf"^{name}==\S+", requirements, re.MULTILINE)) else name
        for name in names
    ]
