"""Computes what a run has cost so far, from the last line of its pod about its time.

This module is pure.
"""

from dataclasses import dataclass
from datetime import datetime

from cli.status.progress import Progress


@dataclass(frozen=True)
class CostSoFar:
    """The cost of a run, in the currency of the price.

    Args:
        total: the cost of all ranks since the run's first start, productive or not.
        price_per_gpu_hour: the price that the user has given.
        rank_hours: the hours of the run times the number of its ranks; each rank has a GPU.
        at: when the run's pod wrote the line with the hours. Later hours are not included.
    """

    total: float
    price_per_gpu_hour: float
    rank_hours: float
    at: datetime | None


def cost_so_far(progress: Progress, price_per_gpu_hour: float | None) -> CostSoFar | None:
    """Return the cost; None without a price, or without a line about the run's time."""
    hours = progress.rank_hours
    if price_per_gpu_hour is None or hours is None:
        return None
    return CostSoFar(hours * price_per_gpu_hour, price_per_gpu_hour, hours, progress.goodput_at)


def cost_text(cost: CostSoFar) -> str:
    """Return a text such as `23.30 at 2.5 per GPU-hour for 9.320 rank-hours`."""
    hours = f"for {cost.rank_hours:.3f} rank-hours"
    return f"{cost.total:.2f} at {cost.price_per_gpu_hour:g} per GPU-hour {hours}"
