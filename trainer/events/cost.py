"""Computes what the GPUs of a run cost.

This module does no input or output.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.events.account import Account
from trainer.events.span import Kind

HOUR_SECONDS = 3600


@dataclass(frozen=True)
class Cost:
    """The cost of a run, in the currency of the price.

    Args:
        total: The cost of all GPUs for the whole time.
        kinds: The cost by what the time was spent on; the sum is `total`.
        per_million_tokens: The total cost for each million of tokens that were trained on and kept;
            None if there are none.
    """

    price_per_gpu_hour: float
    total: float
    kinds: dict[Kind, float]
    per_million_tokens: float | None


def cost_of(account: Account, price_per_gpu_hour: float) -> Cost:
    """Return what the GPUs cost at a price, whether they were productive or not."""
    price = price_per_gpu_hour / HOUR_SECONDS
    kinds = {kind: seconds * price for kind, seconds in account.gpu_seconds.items()}
    total = sum(kinds.values())
    return Cost(
        price_per_gpu_hour,
        total,
        kinds,
        total / account.tokens * 1e6 if account.tokens else None,
    )
