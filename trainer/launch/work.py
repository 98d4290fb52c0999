"""What a node's entrypoint starts: our trainer, or a program of the user's own.

The entrypoint gathers the nodes, starts the ranks, restarts them and keeps their output, whatever
they are. All in which the two differ is asked here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from trainer.launch.local_ranks import LocalRanks
from trainer.launch.membership import Round
from trainer.launch.status_files import ExitReport


class Work(Protocol):
    """What runs on this node."""

    how_to_go_on: str
    """What the user has to do so that a finished run goes on."""
    is_our_trainer: bool
    """Whether our trainer runs: its ranks have nothing to save before their first step, and say
    that they were stopped only if they were asked to. Nobody knows that of a program."""

    def prepare(self, environment: Mapping[str, str]) -> None:
        """Called before the nodes gather for a round.

        `environment`: the variables that all ranks of this node have in common, in each round.
        """
        ...

    def start(self, here: Round, environments: Sequence[Mapping[str, str]]) -> LocalRanks:
        """Start the ranks of a round; `environments` has the variables of each.

        Raises:
            FatalError: they can never be started.
            OSError, RetryableError: they cannot be started now.
        """
        ...

    def poll(self) -> bool:
        """Called several times a second while they run: whether each of them has stepped."""
        ...

    def ends(self) -> None:
        """Called once in a round in which the ranks are to be ended because one has failed."""
        ...

    def report(self) -> ExitReport:
        """How they have ended. Called once, when none runs any more."""
        ...

    def round_is_done(self) -> None:
        """Called on node 0 when the ranks of all nodes have ended with exit code 0."""
        ...

    def close(self) -> None:
        """Called when no further round is to come."""
        ...

    def finished(self) -> str | None:
        """How the run has finished, for people; None if it has not.

        Raises:
            FatalError: the folder of the run belongs to another one.
        """
        ...

    def newest(self) -> str:
        """A text that grows with each checkpoint, in the order of texts."""
        ...

    def recorded(self) -> str:
        """The text that `newest` gave to earlier processes, as the volume tells it."""
        ...
