"""Reads the devices of a platform, which limit the runs on it."""

from dataclasses import dataclass
from typing import Literal, cast

from infra.settings.reader import Reader


@dataclass(frozen=True)
class Devices:
    """What the platform offers to runs.

    Args:
        accelerator: `gpu` or `cpu`.
        gpus: number of GPUs; 0 on CPU.
        shared: whether one GPU is offered several times (time slices or MIG). A run with several
            ranks could then get the same GPU twice.
        machines: number of the platform's own machines that are not lost; 1 if others run the
            cluster.
    """

    accelerator: Literal["gpu", "cpu"]
    gpus: int
    shared: bool = False
    machines: int = 1


def read_devices(reader: Reader) -> Devices:
    """Read `accelerator` and `gpus`."""
    accelerator = cast(Literal["gpu", "cpu"], reader.choice("accelerator", ("gpu", "cpu")))
    gpus = reader.integer("gpus", at_least=1 if accelerator == "gpu" else 0)
    return Devices(accelerator, gpus if accelerator == "gpu" else 0)
