"""The type of a subcommand of `python3 -m sandbox`."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments. A command without arguments has this as its `add_arguments`."""


@dataclass(frozen=True)
class Command:
    """A subcommand. Its `run` returns the exit status, where None means 0."""

    help: str
    run: Callable[[argparse.Namespace], int | None]
    add_arguments: Callable[[argparse.ArgumentParser], None] = no_arguments
