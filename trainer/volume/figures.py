"""How long the nodes' writes to their volume took, and how that is said. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SHARED = "volume: "
"""The line of node 0 begins so; `./disttrain status` and `pulumi up` look for it."""


@dataclass(frozen=True)
class Figures:
    """What one node has measured.

    Args:
        write_seconds: for a new small file and its fsync.
        rename_seconds: for its rename and the fsync of the folder.
        visible_seconds: until it saw the files of all other nodes, after all had written them.
        file_system: on which its folder is; empty where that is not known.
    """

    write_seconds: float
    rename_seconds: float
    visible_seconds: float
    file_system: str = ""


def figures_line(nodes: Mapping[int, Figures]) -> str:
    """One line for the log, with the slowest node of each figure."""

    def slowest(what: str, seconds: Mapping[int, float]) -> str:
        node = max(seconds, key=lambda each: seconds[each])
        return f"{what} at most {seconds[node] * 1e3:.3g} ms (node {node})"

    parts = (
        slowest("write and fsync", {node: each.write_seconds for node, each in nodes.items()}),
        slowest("rename", {node: each.rename_seconds for node, each in nodes.items()}),
        slowest(
            "seen by the others after",
            {node: each.visible_seconds for node, each in nodes.items()},
        ),
    )
    systems = sorted({each.file_system for each in nodes.values() if each.file_system})
    where = f"; {', '.join(systems)}" if systems else ""
    return f"{SHARED}{len(nodes)} nodes see each other's new files: {', '.join(parts)}{where}"
