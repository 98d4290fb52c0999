"""What a check is: a pure judgement over facts, with an id, evidence and a one-line fix."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cli.facts import Facts, NotSeenError
from infra.expectations import Expectations

Severity: TypeAlias = Literal["error", "warning"]
Status: TypeAlias = Literal["ok", "error", "warning", "not asked for", "not checked"]
Scope: TypeAlias = Literal["host", "cluster"]

PROBE_SECONDS = 3
"""Time limit of one check: of the slowest question it asks. They are asked side by side."""


@dataclass(frozen=True)
class Fault:
    """Something is wrong: what was seen, and the one line that mends it."""

    severity: Severity
    evidence: str
    fix: str


class NotAskedForError(Exception):
    """The check does not matter here; the text says why."""


Judge: TypeAlias = Callable[[Facts, Expectations], "Fault | str"]
"""Returns a fault, or what was seen when all is well. May raise NotSeenError, NotAskedForError."""


@dataclass(frozen=True)
class Check:
    """An id that stays the same for ever, and the judgement."""

    id: str
    judge: Judge
    limit_seconds: int = PROBE_SECONDS


@dataclass(frozen=True)
class Result:
    """What a check came to."""

    id: str
    status: Status
    evidence: str
    fix: str
    limit_seconds: int

    @property
    def is_finding(self) -> bool:
        """Whether there is something to mend."""
        return self.status in ("error", "warning")


def run_check(check: Check, facts: Facts, expect: Expectations) -> Result:
    """One result, whatever the check comes to."""
    fix = ""
    status: Status = "ok"
    try:
        outcome = check.judge(facts, expect)
    except NotAskedForError as reason:
        status, evidence = "not asked for", str(reason)
    except NotSeenError as reason:
        status, evidence = "not checked", str(reason)
    else:
        if isinstance(outcome, Fault):
            status, evidence, fix = outcome.severity, outcome.evidence, outcome.fix
        else:
            evidence = outcome
    return Result(check.id, status, evidence, fix, check.limit_seconds)


def run_checks(checks: Iterable[Check], facts: Facts, expect: Expectations) -> list[Result]:
    """Their results, in the same order."""
    return [run_check(check, facts, expect) for check in checks]


def error(evidence: str, fix: str) -> Fault:
    """It will not work like this."""
    return Fault("error", evidence, fix)


def warning(evidence: str, fix: str) -> Fault:
    """It may work, and sooner or later it will hurt."""
    return Fault("warning", evidence, fix)


def asked_for(condition: object, otherwise: str) -> None:
    """Raises NotAskedForError unless the condition holds."""
    if not condition:
        raise NotAskedForError(otherwise)


def version_tuple(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: `5.14.0-el9` is (5, 14, 0)."""
    numbers: list[int] = []
    for part in text.lstrip("v").replace("-", ".").replace("+", ".").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
