"""Several machines side by side: what is known of each, and what a check of them is."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from cli.check import Fault
from cli.facts import Facts
from infra.node.expectations import Expectations


@dataclass(frozen=True)
class Machine:
    """A machine that has answered; `sees` is what it reports of the others, by their names."""

    name: str
    facts: Facts
    is_server: bool = False
    sees: Mapping[str, Facts] | None = None


Found: TypeAlias = Iterator[tuple[str, Fault | str]]
"""Where (`a`, or `a -> b`), and a fault or what was seen there."""


@dataclass(frozen=True)
class PairCheck:
    """An id, which never changes its meaning, and the judgement of all machines."""

    id: str
    judge: Callable[[list[Machine], Expectations], Found]

    @property
    def summary(self) -> str:
        """One sentence for people: what is checked, and why it matters."""
        return (self.judge.__doc__ or "").strip().splitlines()[0]


def identified(machines: list[Machine]) -> Iterator[tuple[Machine, Machine]]:
    """Each two machines whose machine-id is known."""
    known = [machine for machine in machines if machine.facts.get("machine_id")]
    yield from combinations(known, 2)


def same(one: Machine, two: Machine, fact: str) -> bool:
    """Whether both have reported the same."""
    return one.facts.get(fact) == two.facts.get(fact)


def one_machine(one: Machine, two: Machine) -> bool:
    """Whether two names seem to lead to one machine."""
    return same(one, two, "machine_id") and same(one, two, "node_ip")


def between(one: Machine, two: Machine) -> str:
    """The place of what two machines have or have not in common."""
    return f"{one.name}, {two.name}"


def way(source: Machine, target: Machine) -> str:
    """The place of what one machine sees of another."""
    return f"{source.name} -> {target.name}"
