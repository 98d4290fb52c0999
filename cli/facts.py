"""The facts that the scripts in cli/scripts print, one on each line.

A line is `name=value`, or `name?reason` for a fact that the script could not find out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_LINE = re.compile(r"([A-Za-z_][\w.:-]*)([=?])(.*)")


class NotSeenError(Exception):
    """A fact that a check needs could not be found out; the text says why."""


@dataclass(frozen=True)
class Facts:
    """The values of each fact in the order in which they were printed.

    `unseen` has the reason for each fact that could not be found out.
    """

    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    unseen: dict[str, str] = field(default_factory=dict[str, str])

    def all(self, name: str) -> list[str]:
        """All values of a fact that can have none, one or several.

        Raises:
            NotSeenError: the script could not find the fact out.
        """
        if name in self.unseen:
            raise NotSeenError(self.unseen[name])
        return self.values.get(name, [])

    def one(self, name: str) -> str:
        """The value of a fact that every host has; the last one if there are several.

        Raises:
            NotSeenError: the fact is missing.
        """
        found = self.all(name)
        if not found:
            raise NotSeenError(f"the fact {name!r} was not reported")
        return found[-1]

    def number(self, name: str) -> int:
        """The value of a fact that is a whole number.

        Raises:
            NotSeenError: the fact is missing or is not a whole number.
        """
        text = self.one(name)
        if not re.fullmatch(r"-?\d+", text):
            raise NotSeenError(f"the fact {name!r} is not a whole number: {text!r}")
        return int(text)

    def get(self, name: str, default: str = "") -> str:
        """The last value of a fact, or `default` if it is missing for any reason."""
        found = self.values.get(name, [])
        return found[-1] if found else default

    def rows(self, name: str, columns: int) -> list[list[str]]:
        """All values of a fact, each split at `|` into exactly this number of columns.

        Missing columns are filled with empty texts, and further ones are left out. Raises
        NotSeenError if the script could not find the fact out.
        """
        rows = [value.split("|") for value in self.all(name)]
        return [[*row, *[""] * columns][:columns] for row in rows]


def parse_facts(lines: Iterable[str]) -> Facts:
    """Read facts from a script's output; lines of another form are ignored."""
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
