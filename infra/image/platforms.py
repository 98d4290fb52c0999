"""Tells the platform of a machine or an image: system and processor, such as `linux/amd64`."""

import json
import platform
from typing import Any

from infra.image.oci import Image

# The kernel's names for processors, and the names that container images use.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def this_machine() -> str:
    """Return the platform of containers that run on this machine without emulation."""
    machine = platform.machine()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def platform_of_plugins(table: str) -> str | None:
    """Return the platform of containerd's containers, from the output of `ctr plugins ls`.

    Returns:
        A text such as `linux/amd64`, without a variant such as `/v8`; None if the table has none.
    """
    for row in map(str.split, table.splitlines()):
        if row[:2] == ["io.containerd.runtime.v2", "task"]:
            return "/".join(row[2].partition(",")[0].split("/")[:2])
    return None


def platform_of_image(image: Image) -> str:
    """Return the platform that an image's configuration names."""
    config: dict[str, Any] = json.loads(image.config.read())
    return f"{config.get('os', 'unknown')}/{config.get('architecture', 'unknown')}"


def architecture_of(platform_name: str) -> str:
    """Return the processor of a platform: `amd64` of `linux/amd64`."""
    return platform_name.partition("/")[2]
