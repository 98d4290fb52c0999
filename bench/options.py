"""Checks the options that several measurements have in common."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable


def refuse_unknown(
    parser: argparse.ArgumentParser, what: str, given: Iterable[str], known: Collection[str]
) -> None:
    """End the program with a usage error if a name that the user has given is not known.

    Args:
        parser: the parser of the program's options.
        what: what the names are for, such as `row`.
        given: the names that the user has given.
        known: all names that there are.
    """
    if unknown := [name for name in given if name not in known]:
        parser.error(
            f"{', '.join(unknown)} cannot be used: there is no such {what}. "
            f"Name one or more of {', '.join(known)}."
        )
