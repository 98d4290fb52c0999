"""Makes virtualenvs in the cache, one for each set of requirements, and links them here."""

import os
import subprocess
import sys
from pathlib import Path

from sandbox.cache import cached_folder, content_key
from sandbox.say import phase

PROJECT = Path(__file__).parent.parent
REQUIREMENTS = {
    # Pulumi's virtualenv is small, because each preview reads all of it. `make lock` writes
    # requirements.lock.
    ".venv": ("requirements.lock",),
    ".venv-dev": (
        "tests/requirements.txt",
        "requirements.txt",
        "trainer/requirements.txt",
        "policy/requirements.txt",
    ),
    ".venv-kubeflow": ("tests/requirements-kubeflow.txt",),
    ".venv-trainer": ("trainer/requirements.txt",),
    "policy/.venv": ("policy/requirements.txt",),
}


def ensure_venv(link_name: str) -> Path:
    """The virtualenv to which `<checkout>/<link_name>` links; it is made if it is missing.

    If that path is a real folder, which the user has made, it is used as it is.
    """
    link = PROJECT / link_name
    if link.is_dir() and not link.is_symlink():
        return link
    files = [PROJECT / name for name in REQUIREMENTS[link_name]]

    def make(folder: Path) -> None:
        with phase(f"pip install -r {REQUIREMENTS[link_name][0]}"):
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            subprocess.run(
                [folder / "bin" / "python", "-m", "pip", "install", "-q", "-r", files[0]],
                check=True,
                env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            )

    name = link_name.lstrip(".").replace("/.", "-")
    key = f"{name}-py{sys.version_info[0]}.{sys.version_info[1]}-{content_key(*files)}"
    venv = cached_folder("venvs", key, make)
    fresh = link.with_name(f"{link.name}.{os.getpid()}")
    fresh.symlink_to(venv)
    fresh.replace(link)
    return venv
