"""The checks of the doctor: each is a pure function over facts, and finds at most one fault.

A fault has evidence (what was seen) and a fix (one line that says how to correct it).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cli.facts import Facts, NotSeenError
from infra.node.expectations import Expectations

Severity: TypeAlias = Literal["error", "warning"]
Status: TypeAlias = Literal["ok", "error", "warning", "not applicable", "not checked"]

PROBE_SECONDS = 3
"""Time limit of each probe in a script that gathers facts. The probes run side by side."""
SMI_SECONDS = 30
"""Time limit of a run of nvidia-smi. Without persistence mode the driver starts every GPU anew for
each run, which takes 1 to 3 s for each GPU."""


@dataclass(frozen=True)
class Fault:
    """Something that is wrong: what was seen, and one line that says how to correct it."""

    severity: Severity
    evidence: str
    fix: str


class NotApplicable(Exception):  # noqa: N818 - this is an outcome of a check and not an error
    """The check is of no use for this host or for these settings; the text gives the reason."""


Judge: TypeAlias = Callable[[Facts, Expectations], "Fault | str"]
"""A function that returns a fault, or a short text of what was seen if nothing is wrong.

It may raise NotSeenError or NotApplicable. The first line of its docstring says what is checked;
docs/operations.md has the same text.
"""


@dataclass(frozen=True)
class Check:
    """A check: an id, whose meaning never changes, and the function that judges the facts.

    `about` is a sentence that says what is checked. If it is empty, the first line of the
    function's docstring is that sentence.
    """

    id: str
    judge: Judge
    limit_seconds: int = PROBE_SECONDS
    about: str = ""

    @property
    def summary(self) -> str:
        """One sentence for people: what is checked, and why it matters."""
        return self.about or (self.judge.__doc__ or "").strip().splitlines()[0]


@dataclass(frozen=True)
class Result:
    """The outcome of one check."""

    id: str
    status: Status
    evidence: str
    fix: str
    limit_seconds: int
    place: str = ""
    """If several machines are examined: the name of the machine, or of the two machines."""

    @property
    def is_finding(self) -> bool:
        """Whether something has to be mended."""
        return self.status in ("error", "warning")

    @classmethod
    def of(cls, id: str, outcome: Fault | str, limit_seconds: int, place: str = "") -> "Result":
        """Make the result from what a judgement returned: a fault, or a text if all is well."""
        if isinstance(outcome, Fault):
            return cls(id, outcome.severity, outcome.evidence, outcome.fix, limit_seconds, place)
        return cls(id, "ok", outcome, "", limit_seconds, place)


def run_check(check: Check, facts: Facts, expect: Expectations) -> Result:
    """Run one check. There always is a result, even if a fact is missing."""
    try:
        outcome = check.judge(facts, expect)
    except NotApplicable as reason:
        return Result(check.id, "not applicable", str(reason), "", check.limit_seconds)
    except NotSeenError as reason:
        return Result(check.id, "not checked", str(reason), "", check.limit_seconds)
    return Result.of(check.id, outcome, check.limit_seconds)


def run_checks(checks: Iterable[Check], facts: Facts, expect: Expectations) -> list[Result]:
    """Run several checks; the results have the order of the checks."""
    return [run_check(check, facts, expect) for check in checks]


def error(evidence: str, fix: str) -> Fault:
    """Return a fault that keeps the training from working."""
    return Fault("error", evidence, fix)


def warning(evidence: str, fix: str) -> Fault:
    """Return a fault that may be harmless now, and is likely to cause trouble later."""
    return Fault("warning", evidence, fix)


def skip_unless(condition: object, reason: str) -> None:
    """End the check as not applicable unless the condition holds.

    Raises:
        NotApplicable: the condition is false; the text is `reason`.
    """
    if not condition:
        raise NotApplicable(reason)


def only_for_own_k3s(expect: Expectations) -> None:
    """End the check as not applicable unless disttrain itself installs k3s on the host.

    Raises:
        NotApplicable: an existing cluster is used; the cluster's owner looks after its host.
    """
    skip_unless(expect.provision, "an existing cluster is used; its owner looks after its host")


def version_tuple(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: `5.14.0-el9` gives (5, 14, 0)."""
    numbers: list[int] = []
    for part in text.lstrip("v").replace("-", ".").replace("+", ".").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
