"""Finds out which rank holds up all other ranks in a run that makes no step any more.

When one rank does not enter a collective, all other ranks wait in it. They are the victims,
whatever error ends their wait later.

This module does no input or output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainer.watch.beat import Phase
from trainer.watch.dead_links import DeadLinks, dead_links, end_words

_STATES = {
    "T": "stopped",
    "t": "stopped by a debugger",
    "D": "waits for a disk or a device",
    "Z": "has ended",
    "R": "runs",
    "S": "sleeps",
}

_ADDRESSES = ("own", "silent")
AS_BY = "as by a dead network card, link or switch, or a machine that is off"


@dataclass(frozen=True)
class RankState:
    """What was seen of one rank.

    Args:
        rank, node: The global rank, and the node on which it runs.
        step: The update that the rank makes, counted from 1 as in the log.
        phase: What the rank does; a number of `Phase`.
        waits: Whether the rank is in a collective.
        process: The letter of the process's state (proc(5)); empty if the system does not tell it.
        place: The Python line in which the rank is; empty if the rank has not answered.
        own: The addresses of this machine in the rank's connections to other machines.
        silent: The addresses of the peers that do not acknowledge what the rank sends
            (trainer/watch/connections.py).
    """

    rank: int
    node: int
    step: int
    phase: int
    waits: bool
    process: str
    place: str
    own: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()

    @property
    def is_stopped(self) -> bool:
        """Whether the rank's process is stopped or has ended."""
        return self.process in ("T", "t", "Z")


def to_text(states: Sequence[RankState]) -> str:
    """Return a text in which a node sends the states to node 0."""
    return json.dumps([asdict(state) for state in states])


def from_text(text: str) -> list[RankState]:
    """Return the states that `to_text` has written.

    Raises:
        ValueError: `text` is something else.
    """
    try:
        states = [RankState(**_with_tuples(entry)) for entry in json.loads(text)]
        for state in states:
            Phase(state.phase)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"this says nothing about ranks: {error}") from None
    return states


def _with_tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the lists, which JSON has instead of tuples, back into tuples."""
    return {key: tuple(value) if key in _ADDRESSES else value for key, value in entry.items()}


class Hang:
    """Ranks that have made no step for some time, and those of them that are the cause.

    Args:
        states: The states of all ranks that were seen; at least one.
        missing: The nodes that have not reported where their ranks are.
        away: Those of the `missing` nodes that do not acknowledge what node 0 sends them.
    """

    def __init__(
        self, states: Sequence[RankState], missing: Sequence[int] = (), away: Sequence[int] = ()
    ) -> None:
        self._states = sorted(states, key=lambda state: state.rank)
        self._missing = missing
        self._links = dead_links(self._states, away)
        self.culprits = self._find_culprits()
        """The ranks for which the others wait; empty if the states do not show it."""

    def _find_culprits(self) -> list[RankState]:
        states, links = self._states, self._links
        if stopped := [state for state in states if state.is_stopped]:
            return stopped
        if busy := [state for state in states if not state.waits]:
            return busy
        if links.pairs or links.cut_off:
            return [state for state in states if state.node in links.cut_off]
        if self._missing:  # a missing rank may be the cause
            return []
        # All ranks wait, but in different collectives. The rank that is furthest has left out the
        # collective in which the other ranks wait.
        furthest = max((state.step, state.phase) for state in states)
        ahead = [state for state in states if (state.step, state.phase) == furthest]
        return ahead if len(ahead) < len(states) else []

    def describe(self, seconds: float) -> str:
        """Return one sentence for the log; `seconds`: for how long no rank has made a step."""
        states, found, links = self._states, self.culprits, self._links
        victims = [state for state in states if state not in found]
        begin, nodes = f"no step for {seconds:.0f} s", ", ".join(map(str, self._missing))
        if (links.pairs or links.cut_off) and all(state.node in links.cut_off for state in found):
            waits = f"{_ranks(victims)} {_wait(victims)}" if victims else ""
            for_it = f"; {waits}{' for it' if links.cut_off else ''} in " if victims else ""
            collective = collective_words(victims[0]) if victims else ""
            return f"{begin}: {_cut_off(links, found)}{for_it}{collective}"
        if not found and self._missing:
            return (
                f"{begin}: node(s) {nodes} did not say where their ranks are; {_ranks(states)} "
                f"{_wait(states)} in {collective_words(states[0])}"
            )
        if not found:
            return (
                f"{begin}: all ranks wait in {collective_words(states[0])}, so none of them is to "
                "blame; look at the network between them"
            )
        parts = [_culprit(state) for state in found]
        if victims:
            waits = f"{_ranks(victims)} {_wait(victims)}"
            parts.append(f"{waits} for it in {collective_words(victims[0])}")
        if self._missing:
            parts.append(f"node(s) {nodes} did not say where their ranks are")
        return f"{begin}: {'; '.join(parts)}"


def _cut_off(links: DeadLinks, found: Sequence[RankState]) -> str:
    """Return words that say which node nothing reaches, or which two nodes are disconnected."""
    if not links.cut_off:
        pairs = "; ".join(f"{end_words(a)} and {end_words(b)}" for a, b in links.pairs)
        return (
            f"nothing arrives any more between {pairs}: what they send is not acknowledged, "
            f"{AS_BY}; look at the network between them"
        )
    nodes = " and ".join(map(end_words, links.cut_off))
    who = f"{_ranks(found)} on {nodes}" if found else nodes
    verb = "is" if len(found or links.cut_off) == 1 else "are"
    at = f" (at {', '.join(links.addresses)})" if links.addresses else ""
    return (
        f"{who} {verb} cut off from the other nodes: what is sent there{at} is not acknowledged, "
        f"{AS_BY}"
    )


def _wait(states: Sequence[RankState]) -> str:
    return "waits" if len(states) == 1 else "wait"


def _culprit(state: RankState) -> str:
    who, where = f"rank {state.rank} on node {state.node}", Phase(state.phase).words
    name = _STATES.get(state.process, "")
    process = f"state {state.process}{f' ({name})' if name else ''}" if state.process else ""
    if state.is_stopped:
        return f"{who} does not answer, {process}; it was last in {where} of step {state.step}"
    if state.waits:
        return (
            f"{who} has left out a collective, or its messages are lost: it is in "
            f"{collective_words(state)} already, at {state.place or 'a line that it does not tell'}"
        )
    at = f"at {state.place}" if state.place else f"and does not answer, {process}"
    return f"{who} is in {where} of step {state.step}, {at}"


def collective_words(state: RankState) -> str:
    """Return words for the collective in which a rank waits."""
    if state.phase == Phase.PASSES:
        return f"the sum of the gradients of step {state.step}"
    return f"a collective of {Phase(state.phase).words} of step {state.step}"


def _ranks(states: Sequence[RankState]) -> str:
    numbers = ", ".join(str(state.rank) for state in states)
    return f"rank{'s' if len(states) > 1 else ''} {numbers}"
