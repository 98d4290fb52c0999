"""Older versions of controllers, which users' clusters may have.

Only tests in depth build them. A version of Trainer is built with one of JobSet, and its manifests
install that minor version beside it.
"""

from sandbox.tools.controllers import jobset_controller, trainer_controller
from sandbox.tools.tool import Tool

JOBSET_OF_TRAINER = {"2.1.0": "0.10.1", "2.2.1": "0.11.1"}  # by the version of Trainer


def minor(version: str) -> str:
    """`2.1` of `2.1.0`: the end of the name of the folder in `sandbox/go` that pins it."""
    return version.rpartition(".")[0]


JOBSETS: dict[str, Tool] = {
    version: jobset_controller(version, f"jobset-{minor(version)}")
    for version in JOBSET_OF_TRAINER.values()
}
TRAINERS: dict[str, Tool] = {
    version: trainer_controller(version, f"trainer-{minor(version)}")
    for version in JOBSET_OF_TRAINER
}
