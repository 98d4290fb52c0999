"""Whose link to the other nodes is dead, from the peers that each rank cannot reach. Pure.

Every two nodes between which nothing arrives are a pair. The node that is in all pairs is cut off;
a single pair does not tell which of its two ends it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

End = int | str
"""A node; or an address, where nobody has said whose it is."""


class Seen(Protocol):
    """What is needed of a rank's state."""

    @property
    def node(self) -> int:
        """Where it is."""
        ...

    @property
    def own(self) -> tuple[str, ...]:
        """Addresses of its ends of connections to others."""
        ...

    @property
    def silent(self) -> tuple[str, ...]:
        """Addresses of peers that do not acknowledge."""
        ...


@dataclass(frozen=True)
class DeadLinks:
    """What is known of them.

    Args:
        cut_off: the nodes, or their addresses, that nothing reaches; empty where it may be the
            other end, too.
        pairs: all ends between which nothing arrives, the smaller one first.
        addresses: of `cut_off`, as the others see them.
    """

    cut_off: tuple[End, ...] = ()
    pairs: tuple[tuple[End, End], ...] = ()
    addresses: tuple[str, ...] = ()


def dead_links(states: Sequence[Seen], away: Collection[int] = ()) -> DeadLinks:
    """Find them.

    Args:
        states: of all ranks that were seen.
        away: nodes that do not acknowledge what node 0 sends them.
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
    """Words for people."""
    return f"node {end}" if isinstance(end, int) else f"the node at {end}"


def _order(end: End) -> tuple[bool, int, str]:
    return (isinstance(end, str), end if isinstance(end, int) else 0, str(end))
