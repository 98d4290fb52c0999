"""Makes a virtualenv for a package with which the trainer is compared."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from bench.runs import CHECKOUT


def ensure_other_venv(name: str, package: str) -> Path:
    """The `bin` folder of a virtualenv with a package of the package index; made if it is missing.

    The virtualenv also has the packages of this one, such as torch and the trainer's.

    Args:
        name: the name of the virtualenv's folder in `build`.
        package: the requirement, such as `torchft==0.2.0`.
    """
    venv = CHECKOUT / "build" / name
    python = venv / "bin" / "python"
    if not (venv / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        packages = next(venv.glob("lib/python*/site-packages"))
        (packages / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
        subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
        (venv / "complete").touch()
    return python.parent
