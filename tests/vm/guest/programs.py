"""Runs programs of the unpacked packages, and those of the machine that runs the guest."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PACKAGES = Path(os.environ.get("PACKAGES", "/"))
LIBRARIES = PACKAGES / "usr/lib/x86_64-linux-gnu"


def run(*command: str) -> str:
    """Return the output of a command. Raise RuntimeError with its output if it fails."""
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} failed ({done.returncode}): {done.stdout}{done.stderr}"
        )
    return done.stdout


def environment() -> dict[str, str]:
    """Return the environment in which the packages' programs find each other and libraries."""
    own = [str(PACKAGES / name) for name in ("usr/sbin", "sbin", "usr/bin", "bin")]
    return {
        **os.environ,
        "PATH": ":".join([*own, os.environ["PATH"]]),
        "LD_LIBRARY_PATH": str(LIBRARIES),
    }
