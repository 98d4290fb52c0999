"""Divides a recovery into parts, by the run's own events and by what was seen from outside.

The functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.kinds_watch import PodTimes
from trainer.events.event import Event
from trainer.events.history import read_history
from trainer.events.outlook import Outlook
from trainer.events.span import Phase, Span
from trainer.events.timeline import MICRO


@dataclass(frozen=True)
class Recovery:
    """The recovery from one fault. All points in time are Unix times in seconds.

    Args:
        fault: when the fault was done.
        stopped: when the last step before the pause was made.
        back: when the first step after the pause was made.
        phases: seconds for each phase, by the run's own events. The key None is the training after
            the last step that the run wrote, because a fault comes in the middle of a step.
        pods: the times of the pods of the node whose pod was evicted.
        up: when the controller was started again; 0 if it was not down.
    """

    fault: float
    stopped: float
    back: float
    phases: dict[Phase | None, float]
    pods: PodTimes
    up: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds from the fault to the first step after it."""
        return self.back - self.fault

    @property
    def before(self) -> float:
        """Seconds from the fault to the last step before the pause; below 0 if that came first."""
        return self.stopped - self.fault

    @property
    def difference_seconds(self) -> float:
        """Seconds by which the sum of the parts differs from the whole as seen from outside."""
        return abs(self.before + sum(self.phases.values()) - self.seconds)

    @property
    def ending(self) -> float | None:
        """Seconds from the fault to the end of the old pod; None if no pod was lost."""
        return self.pods.ended - self.fault if self.pods.ended else None

    @property
    def outage(self) -> float:
        """Seconds from the fault until the controller ran again; 0 if the run went on before."""
        return max(0.0, self.up - self.fault) if self.up < self.back else 0.0

    @property
    def seconds_after_outage(self) -> float:
        """Seconds from the fault to the first step after it, without the time of the outage."""
        return self.seconds - self.outage

    @property
    def controller(self) -> float | None:
        """Seconds from the end of the old pod to the creation of the new one; None if unknown.

        If the controller was down, they count from its start. They are below 0 if the new pod was
        made before that.
        """
        known = self.pods.ended and self.pods.made
        return self.pods.made - max(self.pods.ended, self.up) if known else None

    @property
    def seconds_of_others(self) -> float | None:
        """`seconds` without the controller's share and its outage; None if no pod was lost."""
        share = self.controller
        return None if share is None else self.seconds_after_outage - max(0.0, share)

    @property
    def kubelet(self) -> float | None:
        """Seconds from the new pod's creation until it runs; None if no pod was lost."""
        return self.pods.ran - self.pods.made if self.pods.made and self.pods.ran else None


def phases_between(
    events: Sequence[Event], pauses: Sequence[tuple[float, float]]
) -> list[dict[Phase | None, float]]:
    """For each pause, the seconds that the run's start took in each phase; see `Recovery.phases`.

    Args:
        events: the events of node 0.
        pauses: for each pause, the Unix times of the last step before it and the first after it.

    Raises:
        ValueError: the events have no start within a pause.
    """
    spans = list[Span]()
    history = read_history(events, Outlook.of(events), spans.append)
    found: list[dict[Phase | None, float]] = []
    for stopped, back in pauses:
        phases: dict[Phase | None, float] = dict.fromkeys((None, *Phase), 0.0)
        for span in spans:
            begin = history.begin_unix_seconds + span.begin / MICRO
            end = begin + span.length / MICRO
            if span.phase is None:
                phases[None] += max(0.0, min(end, back) - max(begin, stopped))
            elif stopped <= (begin + end) / 2 <= back:
                phases[span.phase] += end - begin
        if not any(phases[phase] for phase in Phase):
            raise ValueError(f"the account has no start between {stopped:.3f} and {back:.3f}")
        found.append(phases)
    return found
