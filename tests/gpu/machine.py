"""Describes the machine for readers of the results: GPU, driver, versions, compiler."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import torch
from torch import version


def describe_machine() -> str:
    """Return the description on one line, where "?" stands for an unknown driver version."""
    name = torch.cuda.get_device_name(0)
    count = torch.cuda.device_count()
    capability = ".".join(map(str, torch.cuda.get_device_capability(0)))
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("gcc", "clang")), "none")
    return (
        f"{count} x {name} (compute capability {capability}), driver {driver_version()}, torch "
        f"{torch.__version__}, CUDA {version.cuda}, Python {platform.python_version()}, "
        f"C compiler {Path(compiler).name}, {os.cpu_count()} CPU cores"
    )


def driver_version() -> str:
    """Return the version of the NVIDIA driver as nvidia-smi reports it; "?" if it does not."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return "?"
    return done.stdout.split("\n")[0].strip()
