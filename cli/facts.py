"""What the gather scripts saw, as they printed it: `name=value`, or `name?reason`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_LINE = re.compile(r"([A-Za-z_][\w.:-]*)([=?])(.*)")


class NotSeenError(Exception):
    """A fact that a check needs is not there; the text says why."""


@dataclass(frozen=True)
class Facts:
    """Values by name, in the order seen, and the reasons where there are none."""

    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    unseen: dict[str, str] = field(default_factory=dict[str, str])

    def all(self, name: str) -> list[str]:
        """Every value of a fact that may have none, or several.

        Raises:
            NotSeenError: it could not be looked for.
        """
        if name in self.unseen:
            raise NotSeenError(self.unseen[name])
        return self.values.get(name, [])

    def one(self, name: str) -> str:
        """The value of a fact that every host has.

        Raises:
            NotSeenError: it could not be seen.
        """
        found = self.all(name)
        if not found:
            raise NotSeenError(f"the fact {name!r} was not reported")
        return found[-1]

    def number(self, name: str) -> int:
        """The same, a whole number."""
        text = self.one(name)
        if not re.fullmatch(r"-?\d+", text):
            raise NotSeenError(f"the fact {name!r} is no number: {text!r}")
        return int(text)

    def get(self, name: str, default: str = "") -> str:
        """The last value, or `default` where there is none for whatever reason."""
        found = self.values.get(name, [])
        return found[-1] if found else default

    def rows(self, name: str, columns: int) -> list[list[str]]:
        """Every value, split at `|` into exactly so many columns."""
        rows = [value.split("|") for value in self.all(name)]
        return [[*row, *[""] * columns][:columns] for row in rows]


def parse_facts(lines: Iterable[str]) -> Facts:
    """Facts from a script's output; lines of another form are passed over."""
    facts = Facts()
    for line in lines:
        match = _LINE.fullmatch(line.rstrip("\n"))
        if match is None:
            continue
        name, kind, value = match.groups()
        if kind == "=":
            facts.values.setdefault(name, []).append(value.strip())
        else:
            facts.unseen[name] = value.strip()
    return facts
