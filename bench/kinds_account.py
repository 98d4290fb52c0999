"""A recovery in its parts: by the run's own account, and by what was seen from outside. Pure."""

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
    """One fault, all times in seconds of this machine's clock of day.

    Args:
        fault: when it was done.
        stopped: of the last step before the pause.
        back: of the first step after it.
        phases: seconds by phase, as the run's own account has them; None is what it trained after
            the last step that it wrote: a fault comes in the middle of one.
        pods: of the node whose pod was evicted.
        up: when the controller was started again that was down; 0: it was not down.
    """

    fault: float
    stopped: float
    back: float
    phases: dict[Phase | None, float]
    pods: PodTimes
    up: float = 0.0

    @property
    def seconds(self) -> float:
        """From the fault to the first step after it."""
        return self.back - self.fault

    @property
    def before(self) -> float:
        """From the fault to the last step before the pause; below 0 where no step came between."""
        return self.stopped - self.fault

    @property
    def difference_seconds(self) -> float:
        """Of the account's sum and the whole as seen from outside."""
        return abs(self.before + sum(self.phases.values()) - self.seconds)

    @property
    def ending(self) -> float | None:
        """From the fault to the end of the old pod; None where no pod was lost."""
        return self.pods.ended - self.fault if self.pods.ended else None

    @property
    def outage(self) -> float:
        """From the fault until the controller was started again; 0 where the run went on before."""
        return max(0.0, self.up - self.fault) if self.up < self.back else 0.0

    @property
    def seconds_after_outage(self) -> float:
        """From the fault to the first step after it, without the time of the outage."""
        return self.seconds - self.outage

    @property
    def controller(self) -> float | None:
        """From the end of the old pod to the new one's creation; below 0 where it came earlier.
        Where the controller was down then, from its start on."""
        known = self.pods.ended and self.pods.made
        return self.pods.made - max(self.pods.ended, self.up) if known else None

    @property
    def seconds_of_others(self) -> float | None:
        """Without the controller's share and its outage; None where no pod was lost."""
        share = self.controller
        return None if share is None else self.seconds_after_outage - max(0.0, share)

    @property
    def kubelet(self) -> float | None:
        """From the new pod's creation until it runs."""
        return self.pods.ran - self.pods.made if self.pods.made and self.pods.ran else None


def phases_between(
    events: Sequence[Event], pauses: Sequence[tuple[float, float]]
) -> list[dict[Phase | None, float]]:
    """Seconds by phase of the starts that a run has made in each pause; see `Recovery`.

    Args:
        events: of node 0.
        pauses: the times of the last step before and of the first step after.

    Raises:
        ValueError: the run's account has no start in a pause.
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
