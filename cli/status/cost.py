"""What a run has cost so far, from the last line of its pod about its time. Pure."""

from dataclasses import dataclass
from datetime import datetime

from cli.status.progress import Progress


@dataclass(frozen=True)
class CostSoFar:
    """In the currency of the price.

    Args:
        total: of all ranks from the run's first start on, whether they were productive or not.
        price_per_gpu_hour: what was asked with.
        rank_hours: hours of the run times its ranks, each of which has a GPU.
        at: when the run's pod has said so; later hours are not in it.
    """

    total: float
    price_per_gpu_hour: float
    rank_hours: float
    at: datetime | None


def cost_so_far(progress: Progress, price_per_gpu_hour: float | None) -> CostSoFar | None:
    """None: there is no price, or no line about the run's time among the last ones."""
    hours = progress.rank_hours
    if price_per_gpu_hour is None or hours is None:
        return None
    return CostSoFar(hours * price_per_gpu_hour, price_per_gpu_hour, hours, progress.goodput_at)


def cost_text(cost: CostSoFar) -> str:
    """`23.30 at 2.5 per GPU-hour for 9.320 rank-hours`."""
    hours = f"for {cost.rank_hours:.3f} rank-hours"
    return f"{cost.total:.2f} at {cost.price_per_gpu_hour:g} per GPU-hour {hours}"
