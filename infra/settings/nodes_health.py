"""Reads whether the machines' health is watched, and what happens to an unusable machine."""

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
    """Read `nodeHealth`.

    With `auto`, only machines with GPUs in a k3s are watched. An unusable one is cordoned if the
    stack has further machines, which can take its work, and is otherwise only reported.
    """
    choice = reader.choice(KEY, ("auto", "off", "report", "cordon"))
    if choice == "off" or choice == "report" or choice == "cordon":
        return choice
    if cluster.kind != "k3s" or devices.accelerator != "gpu":
        return "off"
    return "cordon" if nodes else "report"
