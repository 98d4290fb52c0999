"""Copies the launcher out of the trainer image, for pods whose program runs in another image.

The launcher needs only the standard library and PyYAML. Compiled files are not copied, because the
other image may have another version of Python.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import yaml

import trainer

START_FILE = "start.py"


def carry(folder: Path) -> None:
    """Copy the launcher to a folder; `python3 <folder>/start.py entrypoint ...` starts it."""
    for package in (trainer, yaml):
        assert package.__file__
        source = Path(package.__file__).parent
        left_out = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(source, folder / package.__name__, ignore=left_out, dirs_exist_ok=True)
    shutil.copyfile(Path(__file__).with_name("carried.py"), folder / START_FILE)


def own_command(*arguments: str) -> list[str]:
    """Return the command that starts another process of this trainer, in the way it was started."""
    start = Path(__file__).parents[2] / START_FILE
    own = [str(start)] if start.exists() else ["-m", "trainer"]
    return [sys.executable, *own, *arguments]
