"""Reads what happens to machines that do not answer (`lostNodes`) or are faulty (`nodeHealth`)."""

from typing import Literal

from infra.settings.cluster import ClusterSettings
from infra.settings.devices import Devices
from infra.settings.nodes import NodeSettings
from infra.settings.reader import Reader

NodeHealthChoice = Literal["off", "report", "cordon"]


def read_replaces_lost_nodes(
    reader: Reader, cluster: ClusterSettings, nodes: tuple[NodeSettings, ...]
) -> bool:
    """Read `lostNodes`. With `auto`, pods are replaced in a k3s with several machines."""
    choice = reader.choice("lostNodes", ("auto", "replace", "wait"))
    is_alone = not nodes and reader.are_right("nodes")
    if choice == "replace" and cluster.kind == "k3s" and is_alone:
        reader.problem(
            "lostNodes",
            choice,
            "this stack has one machine, and no other one could take its pods",
            "Set auto or wait, or list further machines in nodes",
        )
    return choice == "replace" or (choice == "auto" and cluster.kind == "k3s" and bool(nodes))


def read_node_health(
    reader: Reader, cluster: ClusterSettings, devices: Devices, nodes: tuple[NodeSettings, ...]
) -> NodeHealthChoice:
    """Read `nodeHealth`.

    With `auto`, only machines with GPUs in a k3s are watched. An unusable one is cordoned if the
    stack has further machines, which can take its work, and is otherwise only reported.
    """
    choice = reader.choice("nodeHealth", ("auto", "off", "report", "cordon"))
    if choice == "off" or choice == "report" or choice == "cordon":
        return choice
    if cluster.kind != "k3s" or devices.accelerator != "gpu":
        return "off"
    return "cordon" if nodes else "report"
