"""What a subcommand of `python -m sandbox` is."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """For a command without arguments of its own."""


@dataclass(frozen=True)
class Command:
    """A subcommand; `run` returns the exit status, None for 0."""

    help: str
    run: Callable[[argparse.Namespace], int | None]
    add_arguments: Callable[[argparse.ArgumentParser], None] = no_arguments
