"""Decides which other runs have to make room for a new run. All functions are pure."""

from dataclasses import dataclass
from datetime import datetime

from infra.kube.objects import Json
from infra.kube.record import Record
from infra.kube.workload import is_active

# For this long after a hand-over, a run without a workload counts as one whose `up` makes it next.
COMING_UP_SECONDS = 120
NOT_THERE = "either its `pulumi up` is just about to make it, or somebody has deleted it"


@dataclass(frozen=True)
class OtherRun:
    """A run of another owner that holds GPUs or CPUs, or is about to take them."""

    record: Record
    coming_up: bool
    """Whether the `up` of the run has written its record but not made its workload yet."""

    def __str__(self) -> str:
        run, gpus = f"{self.record.workload} of stack {self.record.stack}", self.record.gpus
        if self.coming_up:
            held = f" with {gpus} GPUs" if gpus else ""
            return f"{run}{held}, which is not there: {NOT_THERE}"
        return f"{run}, which trains" + (f" on {gpus} GPUs" if gpus else "")


def other_run(record: Record, item: Json | None, now: datetime) -> OtherRun | None:
    """The run of a record of another owner; None: that run needs no GPUs or CPUs now.

    Args:
        record: the record of the other run.
        item: the workload of the other run; None: it does not exist.
        now: the time by the clock of the API server.
    """
    if item is None:
        age = (now - record.since).total_seconds()
        return OtherRun(record, coming_up=True) if age < COMING_UP_SECONDS else None
    if not is_active(item, record.suspend, list(record.over)):
        return None
    return OtherRun(record, coming_up=False)


def runs_to_replace(others: list[OtherRun], gpus: int, gpus_total: int) -> list[OtherRun]:
    """The runs that have to be suspended so that a new run fits; empty: it fits beside all of them.

    The CPUs that a run uses are not counted, so two runs on CPUs never train at the same time.
    The oldest run is chosen first, and no more runs are chosen than necessary.

    Args:
        others: the other runs.
        gpus: how many GPUs the new run needs; 0: it runs on CPUs.
        gpus_total: how many GPUs the cluster has.
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
    for other in [*going]:  # The GPUs of a run that was chosen later may be enough alone.
        if free - other.record.gpus >= gpus:
            going.remove(other)
            free -= other.record.gpus
    return going
