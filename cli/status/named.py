"""Finds the run that the user of `status` has named, by its own name or by its stack's name.

This module is pure.
"""

from collections.abc import Mapping, Sequence

from infra.kube.record import Record


def short_name(stack: str) -> str:
    """Return the name of a stack without its organisation and its project."""
    return stack.rpartition("/")[2]


def is_named(wanted: str, record: Record, run_names: Mapping[str, set[str]]) -> bool:
    """Whether the user has named this run.

    Args:
        wanted: the word that the user has typed: the name of a run or of a stack.
        record: the record of the run.
        run_names: the names of each owner's runs.
    """
    stacks = (record.stack, short_name(record.stack))
    return wanted in stacks or wanted in run_names.get(record.owner, ())


def missing_text(
    wanted: str, records: Sequence[Record], run_names: Mapping[str, set[str]], unseen: str
) -> str:
    """Return the error text if no run has that name.

    Args:
        wanted: the word that the user has typed.
        records: the records of all runs that were found.
        run_names: the names of each owner's runs.
        unseen: which runs could not be looked for; empty if all were seen.
    """
    each = sorted(_words(record, run_names.get(record.owner, set())) for record in records)
    there = f"The runs there: {', '.join(each)}" if each else "No stack has a run there"
    rest = f"; not seen: {unseen}" if unseen else ""
    return (
        f"RUN: no stack on this platform has a run {wanted!r}, and no stack has that name. "
        f"{there}{rest}. `./disttrain runs` also lists runs that no stack has any more"
    )


def _words(record: Record, names: set[str]) -> str:
    stack = short_name(record.stack)
    others = sorted(names - {stack})
    return f"{', '.join(others)} (stack {stack})" if others else stack
