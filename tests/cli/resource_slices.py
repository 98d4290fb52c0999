"""ResourceSlices, in which a driver for Dynamic Resource Allocation lists the devices of a node."""

from collections.abc import Mapping
from typing import Any


def slice_of(
    node: str, devices: Mapping[str, str], driver: str = "gpu.nvidia.com"
) -> dict[str, Any]:
    """Return a ResourceSlice with the type of each device by its name."""
    listed = [
        {"name": name, "attributes": {"type": {"string": kind}}} for name, kind in devices.items()
    ]
    return {"spec": {"driver": driver, "nodeName": node, "devices": listed}}
