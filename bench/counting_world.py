"""A world of ranks that tells the bench of every update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer.parallel.world import World


@dataclass(frozen=True)
class CountingWorld(World):
    """A world of one rank that counts updates: the loop calls `sum` once in each of them."""

    on_update: Callable[[], None] = lambda: None

    def sum(self, values: Sequence[float]) -> list[float]:
        """Report the update and return the values, as the sum over one rank."""
        self.on_update()
        return super().sum(values)
