"""Reads whether the pods of a machine that does not answer are replaced automatically."""

from infra.settings.cluster import ClusterSettings
from infra.settings.nodes import NodeSettings
from infra.settings.reader import Reader

KEY = "lostNodes"


def read_replaces_lost_nodes(
    reader: Reader, cluster: ClusterSettings, nodes: tuple[NodeSettings, ...]
) -> bool:
    """Read `lostNodes`. With `auto`, pods are replaced in a k3s with several machines."""
    choice = reader.choice(KEY, ("auto", "replace", "wait"))
    if choice == "replace" and cluster.kind == "k3s" and not nodes:
        reader.problem(
            KEY,
            choice,
            "this stack has one machine, and no other one could take its pods",
            "Set auto or wait, or list further machines in nodes",
        )
    return choice == "replace" or (choice == "auto" and cluster.kind == "k3s" and bool(nodes))
