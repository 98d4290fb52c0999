"""Says in the log, and writes as events, which rank holds up the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.events.writers import shortened
from trainer.watch.beat import Phase
from trainer.watch.hang import Hang, RankState


class StallTeller:
    """Reports ranks that stand still; on node 0, the ranks of all nodes."""

    def __init__(self, say: Callable[[str], None], events: EventLog) -> None:
        self._say, self._events = say, events

    def tell(
        self,
        states: Sequence[RankState],
        seconds: float,
        missing: Sequence[int] = (),
        away: Sequence[int] = (),
    ) -> None:
        """Report that ranks have made no step for `seconds`.

        Args:
            states: What each rank does; at least one.
            seconds: For how long no rank has made a step.
            missing: The nodes that have not reported where their ranks are.
            away: Those of the `missing` nodes that do not acknowledge what node 0 sends them.
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
