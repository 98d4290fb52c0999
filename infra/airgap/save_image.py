"""Saves an image of a registry as an archive that k3s can import, with a tool of this machine."""

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

Commands: TypeAlias = Callable[[str, str, str], list[list[str]]]

# The commands for (image, file, architecture). The archive must hold the image's name.
TOOLS: Mapping[str, Commands] = {
    "skopeo": lambda image, file, arch: [
        [
            *("skopeo", "copy", "--override-os", "linux", "--override-arch", arch),
            *(f"docker://{image}", f"docker-archive:{file}:{image}"),
        ]
    ],
    "crane": lambda image, file, arch: [
        ["crane", "pull", "--platform", f"linux/{arch}", image, file]
    ],
    "docker": lambda image, file, arch: [
        ["docker", "pull", "--platform", f"linux/{arch}", image],
        ["docker", "save", "--output", file, image],
    ],
    "podman": lambda image, file, arch: [
        ["podman", "pull", "--arch", arch, image],
        ["podman", "save", "--format", "docker-archive", "--output", file, image],
    ],
    "buildah": lambda image, file, arch: [
        ["buildah", "pull", "--arch", arch, image],
        ["buildah", "push", image, f"docker-archive:{file}:{image}"],
    ],
}
# docker is often installed as a client without its engine. `info` asks the engine.
PROBES: Mapping[str, Sequence[str]] = {"docker": ("docker", "info"), "podman": ("podman", "info")}


def choose_tool() -> str:
    """Return the first of TOOLS that works on this machine.

    Raises:
        ValueError: none works. The text says what to install, or how to do without.
    """
    for tool in TOOLS:
        if shutil.which(tool) and _works(PROBES.get(tool, (tool, "--version"))):
            return tool
    raise ValueError(
        f"saving the GPU Operator's images needs one of {', '.join(TOOLS)} on this machine. "
        "Install one (`apt-get install skopeo`), or leave the images out by "
        "--without gpu-operator-images; the node then pulls them"
    )


def save_image(tool: str, image: str, file: Path, architecture: str) -> None:
    """Pull `image` for an architecture and save it as the new `file`.

    It may take as long as the network needs, because the user can see it and end it.

    Raises:
        RuntimeError: the tool failed. The text ends with the tool's last output.
    """
    for command in TOOLS[tool](image, str(file), architecture):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip()[-800:]
            raise RuntimeError(f"{' '.join(command[:2])} {image} failed: {words}")


def _works(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
