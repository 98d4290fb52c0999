"""What the settings of a run need to know about the run's platform."""

from dataclasses import dataclass, field

from infra.settings.devices import Devices
from infra.settings.program_image import PlatformDelivery
from infra.settings.queues_topology import PlatformQueue


@dataclass(frozen=True)
class PlatformForRuns:
    """The properties of a platform that decide which settings its runs may have.

    Args:
        devices: the devices of the platform. Its accelerator decides a run's device and backend.
        queue: the queue that the platform makes; without a name: it makes none.
        delivery: how the platform of another stack delivers images. It does not count for the run
            of the stack that owns the platform.
        on_k3s: whether its cluster is a k3s (`cluster: k3s`).
    """

    devices: Devices
    queue: PlatformQueue = field(default_factory=PlatformQueue)
    delivery: PlatformDelivery = field(default_factory=PlatformDelivery)
    on_k3s: bool = False
