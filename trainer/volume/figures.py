"""Formats the measured times of the nodes' writes to their volume for the log. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SHARED = "volume: "
"""The begin of node 0's line, for which `./disttrain status` and `pulumi up` search the log."""


@dataclass(frozen=True)
class Figures:
    """The measurements of one node.

    Args:
        write_seconds: The time to write a new small file and fsync it.
        rename_seconds: The time to rename it and fsync the folder.
        visible_seconds: The time until the node saw the files of the other nodes, after all had
            written them.
        file_system: The file system of the folder; empty if it is not known.
    """

    write_seconds: float
    rename_seconds: float
    visible_seconds: float
    file_system: str = ""


def figures_line(nodes: Mapping[int, Figures]) -> str:
    """Make one line for the log, with the slowest node for each figure."""

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
