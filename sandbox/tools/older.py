"""The older versions of controllers that users' clusters may have.

Only the tests in depth build them. Each version of Trainer is built with one version of JobSet, and
its manifests install that minor version of JobSet too.
"""

from sandbox.tools.controllers import jobset_controller, trainer_controller
from sandbox.tools.tool import Tool

JOBSET_OF_TRAINER = {"2.1.0": "0.10.1", "2.2.1": "0.11.1"}  # version of Trainer: of JobSet


def minor(version: str) -> str:
    """`2.1` for `2.1.0`. The folder in `sandbox/go` that pins the version ends with it."""
    return version.rpartition(".")[0]


JOBSETS: dict[str, Tool] = {
    version: jobset_controller(version, f"jobset-{minor(version)}")
    for version in JOBSET_OF_TRAINER.values()
}
TRAINERS: dict[str, Tool] = {
    version: trainer_controller(version, f"trainer-{minor(version)}")
    for version in JOBSET_OF_TRAINER
}
