"""Whether the machines are watched, and what becomes of one that is unusable."""

from typing import Literal

from infra.settings.cluster import ClusterSettings
from infra.settings.devices import Devices
from infra.settings.nodes import NodeSettings
from infra.settings.reader import Reader

KEY = "nodeHealth"
NodeHealthChoice = Literal["off", "report", "cordon"]


def read_node_health(
    reader: Reader, cluster: ClusterSettings, devices: Devices, nodes: tuple[NodeSettings, ...]
) -> NodeHealthChoice:
    """`auto`: on machines of ours with GPUs; cordon where another machine can take the work."""
    choice = reader.choice(KEY, ("auto", "off", "report", "cordon"))
    if choice == "off" or choice == "report" or choice == "cordon":
        return choice
    if cluster.kind != "k3s" or devices.accelerator != "gpu":
        return "off"
    return "cordon" if nodes else "report"
