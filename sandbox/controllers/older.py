"""Older versions of controllers; a cluster has one version of each at a time.

Their process, log and user have the names that those of the pinned version have.
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
"""A version of Trainer after the JobSet that it needs, in the order in which they start."""

OLDER: dict[str, Controller] = {
    f"{each.name}-{minor(each.tool.version)}": each
    for controllers in OLDER_TRAINERS.values()
    for each in controllers
}
"""By the choice `--with`, such as `trainer-2.1`."""
