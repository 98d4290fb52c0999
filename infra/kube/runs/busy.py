"""Which other runs are in the way of one that comes up. Pure."""

from dataclasses import dataclass
from datetime import datetime

from infra.kube.objects import Json
from infra.kube.record import Record
from infra.kube.workload import is_active

COMING_UP_SECONDS = 120  # a record without a workload is an `up` under way for so long
NOT_THERE = "either its `pulumi up` is just about to make it, or somebody has deleted it"


@dataclass(frozen=True)
class OtherRun:
    """Another owner's run that has a right to its GPUs."""

    record: Record
    coming_up: bool
    """Its `up` has taken its place and has not made its workload yet."""

    def __str__(self) -> str:
        run, gpus = f"{self.record.workload} of stack {self.record.stack}", self.record.gpus
        if self.coming_up:
            held = f" with {gpus} GPUs" if gpus else ""
            return f"{run}{held}, which is not there: {NOT_THERE}"
        return f"{run}, which trains" + (f" on {gpus} GPUs" if gpus else "")


def other_run(record: Record, item: Json | None, now: datetime) -> OtherRun | None:
    """What a record of another owner means; None where that run is in nobody's way.

    Args:
        record: the other run's.
        item: its workload, None where there is none.
        now: the API server's time.
    """
    if item is None:
        age = (now - record.since).total_seconds()
        return OtherRun(record, coming_up=True) if age < COMING_UP_SECONDS else None
    if not is_active(item, record.suspend, list(record.over)):
        return None
    return OtherRun(record, coming_up=False)


def runs_to_replace(others: list[OtherRun], gpus: int, gpus_total: int) -> list[OtherRun]:
    """The runs that have to go so that a run fits; empty when it fits beside all of them.

    Runs on the CPU share nothing that could be counted, so they never stand beside each other.
    The run that came first goes first, and no more of them go than necessary.

    Args:
        others: the runs that stand.
        gpus: how many the coming run needs, 0 on the CPU.
        gpus_total: how many the cluster has.
    """
    if gpus == 0:
        return [other for other in others if other.record.gpus == 0]
    free = gpus_total - sum(other.record.gpus for other in others)
    going: list[OtherRun] = []
    for other in sorted(others, key=lambda run: run.record.since):
        if free >= gpus:
            break
        if other.record.gpus:
            going.append(other)
            free += other.record.gpus
    for other in [*going]:  # a later one may have enough by itself
        if free - other.record.gpus >= gpus:
            going.remove(other)
            free -= other.record.gpus
    return going
