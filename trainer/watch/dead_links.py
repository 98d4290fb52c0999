"""Finds the node whose network link is dead, from the peers that each rank cannot reach.

Any two nodes between which nothing arrives are a pair. A node that is in all pairs is cut off. If
there is only one pair, it does not show which of its two nodes is cut off.

This module does no input or output.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

End = int | str
"""The number of a node, or an address if it is not known whose address that is."""


class Seen(Protocol):
    """The part of a rank's state that is needed here."""

    @property
    def node(self) -> int:
        """The node on which the rank runs."""
        ...

    @property
    def own(self) -> tuple[str, ...]:
        """The addresses of this machine in the rank's connections to other machines."""
        ...

    @property
    def silent(self) -> tuple[str, ...]:
        """The addresses of the peers that do not acknowledge what the rank sends."""
        ...


@dataclass(frozen=True)
class DeadLinks:
    """The dead network links.

    Args:
        cut_off: The nodes, or their addresses, that nothing reaches; empty if either end of a pair
            may be cut off.
        pairs: All pairs of nodes between which nothing arrives, the smaller number first.
        addresses: The addresses at which other nodes know those in `cut_off`.
    """

    cut_off: tuple[End, ...]
    pairs: tuple[tuple[End, End], ...]
    addresses: tuple[str, ...]


def dead_links(states: Sequence[Seen], away: Collection[int] = ()) -> DeadLinks:
    """Find the dead links.

    Args:
        states: The states of all ranks that were seen.
        away: The nodes that do not acknowledge what node 0 sends them.
    """
    owners: dict[str, set[int]] = {}
    for state in states:
        for address in state.own:
            owners.setdefault(address, set()).add(state.node)
    found: dict[frozenset[End], None] = {}
    for state in states:
        for address in state.silent:
            nodes = owners.get(address, set())
            end: End = next(iter(nodes)) if len(nodes) == 1 else address
            if end != state.node:
                found[frozenset({state.node, end})] = None
    pairs = tuple(tuple(sorted(pair, key=_order)) for pair in found)
    cut_off: tuple[End, ...] = tuple(sorted(away))
    if not cut_off and len(found) > 1:
        common = reduce(frozenset[End].intersection, found)
        cut_off = tuple(common) if len(common) == 1 else ()
    seen_as = {a for s in states for a in s.silent if {*owners.get(a, {a})} & {*cut_off}}
    return DeadLinks(cut_off, tuple((a, b) for a, b in pairs), tuple(sorted(seen_as)))


def end_words(end: End) -> str:
    """Return words for people, such as `node 1`."""
    return f"node {end}" if isinstance(end, int) else f"the node at {end}"


def _order(end: End) -> tuple[bool, int, str]:
    return (isinstance(end, str), end if isinstance(end, int) else 0, str(end))
