"""Decides which nodes are in a round, when it starts, and when it ends to take a node back.

Nothing here opens a connection or reads a clock. The coordinator passes in which nodes wait and
what time it is, and carries out the decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from trainer.config import ConfigError, TrainConfig
from trainer.config.problem import problem_text
from trainer.launch.messages import Hello


@dataclass(frozen=True)
class RoundRules:
    """The settings about the nodes of a round.

    Args:
        nodes: The number of nodes of the run.
        nodes_min: The fewest nodes of a round; equal to `nodes` if a round needs all of them.
        wait_seconds: How long a round waits for the other nodes once `nodes_min` nodes are there.
        return_seconds: How long a round trains before it is ended to take a node back.
    """

    nodes: int
    nodes_min: int
    wait_seconds: float = 0.0
    return_seconds: float = 0.0

    @property
    def is_elastic(self) -> bool:
        """Whether a round may have fewer nodes than the run."""
        return self.nodes_min < self.nodes

    @staticmethod
    def of(train: TrainConfig, nodes: int) -> RoundRules:
        """Return the rules of a run with `nodes` nodes.

        Raises:
            ConfigError: `nodes` is less than `train.nodes_min`.
        """
        if train.nodes_min > nodes:
            reason = f"the run has {nodes} node(s) (PET_NNODES)"
            remedy = f"Set at most {nodes}, or 0 where a round needs all nodes"
            raise ConfigError([problem_text("train.nodes_min", train.nodes_min, reason, remedy)])
        return RoundRules(
            nodes, train.nodes_min or nodes, train.nodes_wait_seconds, train.nodes_return_seconds
        )


class Gathering:
    """Decides about rounds, and remembers what the decision about the next round depends on.

    Node 0 is in every round: the ranks meet at its address, and rank 0 writes the checkpoints.
    """

    def __init__(self, rules: RoundRules):
        self._rules = rules
        self._awaited = set(range(rules.nodes))
        """The nodes for which the next round waits: those of the last round; at first all nodes."""
        self._left_out = set[int]()
        """The nodes that ended the last round soon after its start; the next round omits them."""
        self._enough_since: float | None = None
        self._training_since: float | None = None

    def next_round(self, waiting: Collection[int], now: float) -> list[int]:
        """Return the nodes of the round that starts now, in order; empty if it has to wait.

        Call this again and again while no round runs.

        Args:
            waiting: The node ranks of the nodes that are connected and have ended their old ranks.
            now: Seconds of a monotonic clock.
        """
        there = set(waiting)
        if not self._is_enough(there):
            self._enough_since = None
            return []
        if self._enough_since is None:
            self._enough_since = now
        waited_seconds = now - self._enough_since
        if not self._awaited <= there and waited_seconds < self._rules.wait_seconds:
            return []
        chosen = there - self._left_out
        return sorted(chosen if len(chosen) >= self._rules.nodes_min else there)

    def started(self, members: Collection[int]) -> None:
        """Note that a round with the nodes `members` was started."""
        self._awaited, self._left_out = set(members), set[int]()
        self._enough_since = self._training_since = None

    def all_stepped(self, now: float) -> None:
        """Note that every node of the round has made its first update: the round trains now."""
        self._training_since = now

    def to_take_back(self, waiting: Collection[int], now: float) -> list[int]:
        """Return the waiting nodes for which the running round has to save and end now.

        The result is empty until the round has trained for `return_seconds`. So a node that fails
        again and again costs the other nodes a restart now and then, but cannot keep them from
        training.
        """
        return sorted(waiting) if self._rules.is_elastic and self._has_trained(now) else []

    def lost(self, node: int, others: int, now: float) -> bool:
        """Note that `node` has ended the round; return whether the next round starts without it.

        The next round omits the node if this round has not yet trained for `return_seconds`: the
        node may fail again at once, and would end round after round.

        `others`: the number of other nodes that are connected.
        """
        if self._has_trained(now) or not self.is_dispensable(node, others):
            return False
        self._awaited.discard(node)
        self._left_out.add(node)
        return True

    def is_dispensable(self, node: int, others: int) -> bool:
        """Whether `others` other nodes can train without `node`."""
        return node != 0 and others >= self._rules.nodes_min

    def describe(self, waiting: Collection[int], is_running: bool) -> tuple[str, bool]:
        """Return what the waiting nodes wait for, and whether their round is sure to come.

        The round is sure to come if no further node has to join first.

        `is_running`: whether other nodes are in a round.
        """
        rules, there = self._rules, set(waiting)
        missing = sorted(set(range(rules.nodes)) - there)
        text = f"waiting for node(s) {', '.join(map(str, missing))} to join"
        if not rules.is_elastic:
            return text, False
        if is_running:
            return (
                "the other nodes train without this one; they save and take it back once they "
                f"have trained for {rules.return_seconds:g} s (train.nodes_return_seconds)",
                True,
            )
        if self._is_enough(there):
            return (
                f"{text}; the round starts without them after {rules.wait_seconds:g} s "
                "(train.nodes_wait_seconds)",
                True,
            )
        return (
            f"{text}; a round needs node 0, and at least {rules.nodes_min} of {rules.nodes} nodes "
            "(train.nodes_min)",
            False,
        )

    def _has_trained(self, now: float) -> bool:
        since = self._training_since
        return since is not None and now - since >= self._rules.return_seconds

    def _is_enough(self, there: set[int]) -> bool:
        return 0 in there and len(there) >= self._rules.nodes_min


@dataclass(frozen=True)
class Place:
    """The ranks of one node among all ranks of a round."""

    first_rank: int
    world_size: int
    ranks_on_machine: int
    """The number of ranks of all nodes that share this node's machine."""


def places(members: Sequence[Hello]) -> list[Place]:
    """Return the place of each node of a round, in the order of `members`.

    Ranks are counted without gaps, even if nodes of the run are missing.
    """
    on_machine: dict[str, int] = {}
    for hello in members:
        on_machine[hello.machine] = on_machine.get(hello.machine, 0) + hello.local_ranks
    world_size = sum(hello.local_ranks for hello in members)
    found, first_rank = list[Place](), 0
    for hello in members:
        found.append(Place(first_rank, world_size, on_machine[hello.machine]))
        first_rank += hello.local_ranks
    return found
