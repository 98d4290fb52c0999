"""Which nodes `python3 -m sandbox up` adds and removes.

tests/sandbox/test_nodes.py has real nodes.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sandbox import cluster
from sandbox.cluster import Cluster, ClusterStatus
from sandbox.node import Node


class Changed(Cluster):
    """A cluster whose first node is up. It only notes which other nodes are added and removed."""

    def __init__(self, root: Path, there: list[int]) -> None:
        super().__init__("any", root, root)
        self.there = there
        self.added, self.taken = list[int](), list[int]()

    def status(self) -> ClusterStatus:
        return ClusterStatus(self.name, "up")

    def _exclusive(self) -> Any:
        return nullcontext()

    def _further(self) -> list[Node]:
        return [Node(self.layout.node(number), None) for number in self.there]

    def _first_problems(self) -> list[str]:
        return []

    def _node_problems(self, node: Node) -> list[str]:
        return [] if node.layout.number in self.there else ["it is not there"]

    def _remove_nodes(self, further: list[Node]) -> None:
        self.taken += [node.layout.number for node in further]

    def _add_nodes(self, further: list[Node]) -> None:
        self.added += [node.layout.number for node in further]


@pytest.mark.parametrize(
    ("there", "nodes", "added", "taken"),
    [
        ([2, 3], None, [], []),
        ([2, 3], 2, [], [3]),
        ([2], 3, [3], []),
        # An earlier `up` was killed while it mended node 2, so only the number of nodes is right.
        ([3], 2, [2], [3]),
        ([3], None, [2], []),
    ],
)
def test_wanted_nodes_are_compared_by_number(
    there: list[int],
    nodes: int | None,
    added: list[int],
    taken: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "require_root_on_linux", lambda: None)
    monkeypatch.setattr(cluster, "problems", lambda *_: [])
    made = Changed(tmp_path, there)
    made.up(nodes)
    assert (made.added, made.taken) == (added, taken)
