"""The parser of the command line, which refuses an option that is given twice."""

import argparse
from collections.abc import Sequence
from typing import Any

GIVEN = "given_options"  # where the options that were given are noted while the words are parsed


class Once(argparse.Action):
    """Keeps the value of an option; a second value is an error and does not replace the first."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Take the value; raise ArgumentError, which ends the program, if there is one already."""
        del parser
        given: set[str] = vars(namespace).setdefault(GIVEN, set())
        if option_string and self.dest in given:
            raise argparse.ArgumentError(
                self, f"it is given twice, the second time as {values!r}. Give it once"
            )
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser whose options with a value are given once. The parsers of subcommands are too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in (None, "store"):  # the names of the usual action of an argument
            self.register("action", name, Once)
