"""Finds out which builder of container images works, if this machine builds the trainer image."""

import subprocess
from collections.abc import Sequence

from cli.check import PROBE_SECONDS
from cli.doctor.image_checks import CACHED
from infra.command_line import cache_folder
from infra.image.builders import BUILDERS, choose_builder
from infra.image.dependencies import dependencies_are_built
from infra.node.expectations import Expectations


def build_lines(expect: Expectations) -> list[str]:
    """Return the fact `image_builder` as a line; no line if this machine builds no image."""
    if not expect.image_builder or expect.image_build_on != "here":
        return []
    if expect.image_deps and dependencies_are_built(expect.image_deps, cache_folder()):
        return [f"image_builder={CACHED}"]
    silent: list[str] = []

    def succeeds(command: Sequence[str]) -> bool:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROBE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            silent.append(" ".join(command))
            return False
        except OSError:
            return False
        return done.returncode == 0

    try:
        return [f"image_builder={choose_builder(expect.image_builder, succeeds)}"]
    except ValueError:
        if silent:
            return [f"image_builder?`{silent[0]}` gave no answer in {PROBE_SECONDS} s"]
        return ["image_builder=none"]


def builders_on_node(expect: Expectations) -> Sequence[str]:
    """Return the builders to look for on the node; none if the node does not build the image."""
    if expect.image_build_on != "node":
        return []
    if expect.image_builder == "auto":
        return BUILDERS
    return [expect.image_builder] if expect.image_builder else []
