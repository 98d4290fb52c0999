"""The states of ranks while one of them hangs."""

from __future__ import annotations

from dataclasses import replace

from trainer.watch.beat import Phase
from trainer.watch.hang import RankState

WAITS = RankState(0, 0, 812, Phase.PASSES, True, "S", "torch/autograd/graph.py:824 (_engine)")


def four(**changes: object) -> list[RankState]:
    """Return the states of ranks 0 to 3 on two nodes, in which rank 2 has these changes."""
    states = [replace(WAITS, rank=rank, node=rank // 2) for rank in range(4)]
    states[2] = replace(states[2], **changes)  # pyright: ignore[reportArgumentType]
    return states
