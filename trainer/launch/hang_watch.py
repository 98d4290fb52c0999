"""Notices, in the entrypoint, that ranks of its node do not move any more, and where they are."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainer.launch.status_files import StatusFiles
from trainer.watch.beat import NO_STEP, Phase, Seen, read_beat
from trainer.watch.connections import connections_of
from trainer.watch.hang import RankState, collective_words
from trainer.watch.stack import ask_for_stack, place_in

STILL_SECONDS = 15.0
"""A rank that has not moved for so many seconds counts as standing still."""
LONG_STILL_SECONDS = 60.0
"""The same limit during an evaluation, which may compile, and during a save."""
USUAL_STEPS = 5
"""If steps are slow, a rank has to stand still for the time of so many of its usual steps."""
LOOK_SECONDS = 0.5
"""Seconds between two checks of the ranks."""
ANSWER_SECONDS = 2.0
"""Seconds that the ranks have to write their stacks after they were asked for them."""
KNOWN_STEPS = 5
"""A run's only rank has to have made so many steps before it may be ended for a slow step."""
COMPUTES = (Phase.PASSES, Phase.UPDATE, Phase.AGREEMENT, Phase.REPORT)
"""The phases in which a rank only computes, and waits neither for a volume nor a compiler."""
OVERDUE_SECONDS = 5.0
"""How many seconds after its own limit for a collective torch may take to end the rank."""


@dataclass
class _Rank:
    """What the entrypoint has seen of one rank of this node."""

    pid: int
    seen: Seen | None = None
    moved_at: float = 0.0
    stepped_at: float = 0.0
    steps_seconds: deque[float] = field(default_factory=lambda: deque[float](maxlen=20))
    """Its last steps, as far as they were seen. Steps between two checks are not, so the rank may
    have made steps although this is empty."""

    def look(self, seen: Seen | None, now: float) -> None:
        if seen is None:
            return
        if self.seen is None or seen.count != self.seen.count:
            self.moved_at = now
        if self.seen is None or seen.step != self.seen.step:
            if self.seen is not None and self.seen.step != NO_STEP:
                steps = seen.step - self.seen.step
                self.steps_seconds.append((now - self.stepped_at) / steps)
            self.stepped_at = now
        self.seen = seen

    def is_still(self, now: float) -> bool:
        """Whether the rank has not moved for longer than usual; False before its first step."""
        if self.seen is None or not self.seen.steps_made:
            return False
        is_long = self.seen.phase in (Phase.EVALUATION, Phase.SAVE)
        # `is_overdue` ends the round after the longest wait. A still rank has to be noticed before
        # that, so that the user hears which rank holds up the others.
        least = min(STILL_SECONDS, self.seen.longest_wait_seconds or STILL_SECONDS)
        least = LONG_STILL_SECONDS if is_long else least
        usual = USUAL_STEPS * statistics.median(self.steps_seconds or [0.0])
        return now - self.moved_at > max(least, usual)

    def is_overdue(self, now: float) -> bool:
        """Whether the rank has been in one collective for longer than the limit.

        The result is False in an evaluation: one rank may still compile there while the other ranks
        wait for it. It is False too while a rank waits for the data of another one, which has a
        longer limit of its own (trainer/update.py).
        """
        seen = self.seen
        if seen is None or not seen.waits or not seen.longest_wait_seconds:
            return False
        limit = seen.longest_wait_seconds + OVERDUE_SECONDS
        return seen.phase not in (Phase.EVALUATION, Phase.DATA) and now - self.moved_at > limit

    def is_stuck(self, now: float) -> bool:
        """Whether the run's only rank, for which no other rank waits, computes for too long.

        The result is False where that may be usual: its first steps may compile, and data, an
        evaluation and a save may take longer than any step.
        """
        seen = self.seen
        if seen is None or seen.phase not in COMPUTES or not seen.longest_wait_seconds:
            return False
        if seen.steps_made < KNOWN_STEPS:
            return False
        # The mean and not the median: a GPU may be some steps behind, and then one step waits for
        # all of them.
        usual = USUAL_STEPS * statistics.fmean(self.steps_seconds or [0.0])
        return now - self.moved_at > max(seen.longest_wait_seconds, usual) + OVERDUE_SECONDS


class HangWatch:
    """Watches the ranks of one node in one round."""

    def __init__(
        self,
        node: int,
        first_rank: int,
        pids: Sequence[int],
        status: StatusFiles,
        is_alone: bool = False,
    ):
        """
        Args:
            node: The rank of this node.
            first_rank: The first rank of this node.
            pids: The process ids of its ranks, in the order of the ranks.
            status: The status files of this node.
            is_alone: Whether the round has only one rank, which never waits in a collective.
        """
        self._is_alone = is_alone
        self._node, self._first_rank, self._status = node, first_rank, status
        self._ranks = [_Rank(pid) for pid in pids]
        self._looked_at = float("-inf")
        self._asked_at: float | None = None
        self._has_told = False
        self.still_seconds = 0.0
        """For how many seconds the rank that has stood still for longest has not moved."""

    def poll(self, now: float) -> list[RankState]:
        """Check the ranks, and return where they are if one of them stands still.

        The states are returned once each time that ranks stand still; else the list is empty.

        Args:
            now: Seconds of a monotonic clock.
        """
        if now - self._looked_at < LOOK_SECONDS:
            return []
        self._looked_at = now
        for local_rank, rank in enumerate(self._ranks):
            rank.look(read_beat(self._status.beat_file(local_rank)), now)
        if not any(rank.is_still(now) for rank in self._ranks):
            self._asked_at, self._has_told = None, False
            return []
        self.still_seconds = now - min(rank.moved_at for rank in self._ranks)
        if self._asked_at is None:
            self._asked_at = now
            for local_rank, rank in enumerate(self._ranks):
                if rank.seen is not None:  # it has a handler, so the signal does not end it
                    ask_for_stack(rank.pid, self._status.stack_file(local_rank))
        if self._has_told or now - self._asked_at < ANSWER_SECONDS:
            return []
        self._has_told = True
        seen = [(place, rank) for place, rank in enumerate(self._ranks) if rank.seen is not None]
        return [self._state(place, rank) for place, rank in seen]

    def overdue(self, now: float) -> str:
        """Return why the round has to end because a rank waits or computes for too long.

        This judges what the last `poll` has read. An empty text means that no rank is overdue.
        """
        for local_rank, rank in enumerate(self._ranks):
            if rank.seen is not None and rank.is_overdue(now):
                state = self._state(local_rank, rank)
                return (
                    f"rank {state.rank} has waited for {now - rank.moved_at:.0f} s in "
                    f"{collective_words(state)}, longer than train.timeout_seconds "
                    f"({rank.seen.longest_wait_seconds})"
                )
            if self._is_alone and rank.is_stuck(now) and not self._status.is_saving(local_rank):
                assert rank.seen is not None
                return (
                    f"rank {self._first_rank} has not come further for {now - rank.moved_at:.0f} s "
                    f"in {rank.seen.phase.words} of step {rank.seen.step + 1}, longer than "
                    f"train.timeout_seconds ({rank.seen.longest_wait_seconds}) and than "
                    f"{USUAL_STEPS} usual steps"
                )
        return ""

    def _state(self, local_rank: int, rank: _Rank) -> RankState:
        assert rank.seen is not None
        connections = connections_of(rank.pid)
        return RankState(
            rank=self._first_rank + local_rank,
            node=self._node,
            step=rank.seen.step + 1,
            phase=rank.seen.phase,
            waits=rank.seen.waits,
            process=_state_of(rank.pid),
            place=_place(self._status.stack_file(local_rank)),
            own=connections.own,
            silent=connections.silent,
        )


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # not Linux, or the process has ended
        return "Z" if Path("/proc/self").exists() else ""


def _place(path: Path) -> str:
    try:
        return place_in(path.read_text())
    except OSError:
        return ""
