"""The interface of what a node's entrypoint starts: our trainer, or a program of the user's own.

The entrypoint gathers the nodes, starts and restarts the ranks and keeps their output in the same
way for both. `Work` has a method for each point in which the two differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from trainer.launch.local_ranks import LocalRanks
from trainer.launch.membership import Round
from trainer.launch.status_files import ExitReport


class Work(Protocol):
    """What the ranks of this node run."""

    how_to_go_on: str
    """What the user has to do so that a finished run goes on."""
    is_our_trainer: bool
    """Whether the ranks run our trainer. Ranks of our trainer have nothing to save before their
    first step, and report PREEMPTED only if they were asked to stop. A user's program may differ in
    both."""

    def prepare(self, environment: Mapping[str, str]) -> None:
        """Prepare the start of the ranks. Called before the nodes gather for a round.

        `environment`: the variables that all ranks of this node have in common in every round.
        """
        ...

    def start(self, here: Round, environments: Sequence[Mapping[str, str]]) -> LocalRanks:
        """Start the ranks of the round `here`.

        `environments`: the environment variables of each local rank.

        Raises:
            FatalError: the ranks can never be started.
            OSError, RetryableError: the ranks cannot be started now.
        """
        ...

    def poll(self) -> bool:
        """Return whether every local rank has made its first step.

        Called several times a second while the ranks run.
        """
        ...

    def ends(self) -> None:
        """Prepare for the end of a round that is lost. Called once, before the ranks are ended."""
        ...

    def report(self) -> ExitReport:
        """Return how the local ranks have ended. Called once, when none of them runs any more."""
        ...

    def round_is_done(self) -> None:
        """Note that the run is done.

        Called on node 0 when the ranks of all nodes have ended with exit code 0.
        """
        ...

    def close(self) -> None:
        """Release what the work holds. Called when no further round will come."""
        ...

    def finished(self) -> str | None:
        """Return a text for people that says how the run finished; None while it has not.

        Raises:
            FatalError: the run's folder belongs to another run.
        """
        ...

    def newest(self) -> str:
        """Return a text that names the newest checkpoint; empty if there is none.

        `is_newer` compares two such texts.
        """
        ...

    def recorded(self) -> str:
        """Return what `newest` last returned in an earlier process, read from the volume."""
        ...


def is_newer(newest: str, before: str) -> bool:
    """Return whether `newest` names a later checkpoint than `before`; both are from `Work.newest`.

    The number in a name is filled up with leading zeros to a fixed length. Only a number with more
    digits makes a name longer, so a longer name is that of a later checkpoint.
    """
    return (len(newest), newest) > (len(before), before)
