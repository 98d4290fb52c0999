"""Says which rank holds up the others, in words and as events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.events.writers import shortened
from trainer.watch.beat import Phase
from trainer.watch.hang import Hang, RankState


class StallTeller:
    """On node 0 it is told the states of the ranks of all nodes."""

    def __init__(self, say: Callable[[str], None], events: EventLog) -> None:
        self._say, self._events = say, events

    def tell(
        self,
        states: Sequence[RankState],
        seconds: float,
        missing: Sequence[int] = (),
        away: Sequence[int] = (),
    ) -> None:
        """Tell of ranks that have made no step.

        Args:
            states: what each rank does.
            seconds: for how long no rank has made a step.
            missing: nodes that have not said where their ranks are.
            away: those of them that do not acknowledge what node 0 sends them.
        """
        hang = Hang(states, missing, away)
        self._say(hang.describe(seconds))
        for node in missing if not hang.culprits else ():
            self._events.write(Name.HANG, rank=None, node=node, seconds=round(seconds, 1))
        for state in hang.culprits:
            self._events.write(
                Name.HANG,
                rank=state.rank,
                node=state.node,
                step=state.step,
                phase=Phase(state.phase).name.lower(),
                process=state.process,
                place=shortened(state.place),
                seconds=round(seconds, 1),
            )
