"""The older versions of controllers that a cluster can have instead of the pinned ones.

A cluster has one version of a controller at a time. The process, log and user of an older version
have the same names as those of the pinned version.
"""

from dataclasses import replace

from sandbox.controllers.jobset import JOBSET
from sandbox.controllers.kind import Controller
from sandbox.controllers.trainer import TRAINER
from sandbox.tools.older import JOBSET_OF_TRAINER, JOBSETS, TRAINERS, minor

OLDER_TRAINERS: dict[str, tuple[Controller, ...]] = {
    version: (replace(JOBSET, tool=JOBSETS[needed]), replace(TRAINER, tool=TRAINERS[version]))
    for version, needed in JOBSET_OF_TRAINER.items()
}
"""By the version of Trainer: the JobSet that it needs and Trainer, in the order of their start."""

OLDER: dict[str, Controller] = {
    f"{each.name}-{minor(each.tool.version)}": each
    for controllers in OLDER_TRAINERS.values()
    for each in controllers
}
"""By the name for the option `--with`, such as `trainer-2.1`."""
