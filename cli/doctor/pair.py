"""Types and helpers for the checks of several machines: a machine's facts, and such a check."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from cli.check import Fault
from cli.facts import Facts
from infra.node.expectations import Expectations


@dataclass(frozen=True)
class Machine:
    """A machine that has answered.

    `sees` has, by the names of the other machines, the facts that this one reports about them.
    """

    name: str
    facts: Facts
    is_server: bool
    sees: Mapping[str, Facts] | None


Found: TypeAlias = Iterator[tuple[str, Fault | str]]
"""Pairs of a place (such as `a`, `a, b` or `a -> b`), and of a fault or what was seen there."""


@dataclass(frozen=True)
class PairCheck:
    """A check: an id, whose meaning never changes, and the function that judges all machines.

    The first line of the function's docstring says what is checked; docs/operations.md has the same
    text.
    """

    id: str
    judge: Callable[[list[Machine], Expectations], Found]

    @property
    def summary(self) -> str:
        """One sentence for people: what is checked, and why it matters."""
        return (self.judge.__doc__ or "").strip().splitlines()[0]


def identified(machines: list[Machine]) -> Iterator[tuple[Machine, Machine]]:
    """Yield each pair of machines whose machine-ids are known."""
    known = [machine for machine in machines if machine.facts.get("machine_id")]
    yield from combinations(known, 2)


def same(one: Machine, two: Machine, fact: str) -> bool:
    """Whether both machines have reported the same value of a fact."""
    return one.facts.get(fact) == two.facts.get(fact)


def one_machine(one: Machine, two: Machine) -> bool:
    """Whether two names seem to lead to the same machine."""
    return same(one, two, "machine_id") and same(one, two, "node_ip")


def between(one: Machine, two: Machine) -> str:
    """Return the place of a result about two machines, without a direction: `a, b`."""
    return f"{one.name}, {two.name}"


def way(source: Machine, target: Machine) -> str:
    """Return the place of a result about what one machine sees of another: `a -> b`."""
    return f"{source.name} -> {target.name}"
