"""Shares the global batch out to the ranks, and cuts each share into micro-batches.

Any global batch fits any number of ranks: the shares differ by at most one sequence. Every rank
runs the same number of micro-steps. A rank without a sequence left runs a sequence of weight 0, so
that all ranks take part in the collectives inside the passes.
"""

from __future__ import annotations

from dataclasses import dataclass


def split_evenly(total: int, parts: int) -> list[range]:
    """Cut range(total) into `parts` consecutive ranges whose sizes differ by at most 1."""
    assert total >= 0
    assert parts >= 1
    size, extra = divmod(total, parts)
    starts = [part * size + min(part, extra) for part in range(parts + 1)]
    return [range(starts[part], starts[part + 1]) for part in range(parts)]


@dataclass(frozen=True)
class BatchPlan:
    """The split of one global batch, for one rank. All indices count within the global batch."""

    global_batch_size: int
    world_size: int
    rank: int
    shares: tuple[range, ...]
    micro_batches: tuple[range, ...]

    @property
    def rows(self) -> int:
        """The number of sequences in the largest micro-batch, to which all others are filled up."""
        steps = len(self.micro_batches)
        return -(-len(self.shares[0]) // steps)

    def describe(self, block_size: int) -> str:
        """Describe the split in one line for the log."""
        sizes = "+".join(str(len(share)) for share in self.shares)
        tokens = self.global_batch_size * block_size
        return (
            f"global batch {self.global_batch_size} sequences ({tokens} tokens) = {sizes} over "
            f"{self.world_size} rank(s), {len(self.micro_batches)} micro-step(s) of at most "
            f"{self.rows}"
        )

    def idle_ranks(self) -> str:
        """Return a warning if ranks have no sequence of the global batch; else an empty text."""
        idle = sum(not share for share in self.shares)
        if not idle:
            return ""
        have = "has" if idle == 1 else "have"
        return (
            f"warning: {idle} of {self.world_size} ranks {have} nothing to compute, because "
            f"train.global_batch_size is {self.global_batch_size}. Take at most "
            f"{self.global_batch_size} ranks, or start another run with a larger global batch"
        )


def plan_batch(
    global_batch_size: int, micro_batch_size: int, world_size: int, rank: int
) -> BatchPlan:
    """Split the global batch over the ranks and each share into micro-batches."""
    assert global_batch_size >= 1
    assert micro_batch_size >= 1
    assert 0 <= rank < world_size
    shares = split_evenly(global_batch_size, world_size)
    steps = -(-len(shares[0]) // micro_batch_size)  # No share is larger than share 0.
    mine = shares[rank]
    micro_batches = tuple(mine[part.start : part.stop] for part in split_evenly(len(mine), steps))
    return BatchPlan(global_batch_size, world_size, rank, tuple(shares), micro_batches)
