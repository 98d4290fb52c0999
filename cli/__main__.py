"""`./disttrain COMMAND`: commands that look at a host, a cluster or a run."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cli import doctor, logs, sample
from cli.report import COULD_NOT_CHECK
from cli.status import command as status


@dataclass(frozen=True)
class Command:
    """A subcommand: its help text, its options, and `run`, which returns the exit status."""

    help: str
    run: Callable[[argparse.Namespace], int]
    add_arguments: Callable[[argparse.ArgumentParser], None]


COMMANDS: Mapping[str, Command] = {
    "doctor": Command(
        "find what is wrong with a host and its cluster, and how to mend it",
        doctor.run,
        doctor.add_arguments,
    ),
    "logs": Command("follow the logs of all pods of a run", logs.run, logs.add_arguments),
    "sample": Command(
        "write text with a run's newest checkpoint", sample.run, sample.add_arguments
    ),
    "status": Command(
        "show the platform and how far all runs on it are", status.run, status.add_arguments
    ),
}


def main(words: Sequence[str]) -> int:
    """Run the command that `words` name; returns the exit status."""
    parser = argparse.ArgumentParser(prog="./disttrain", description=__doc__)
    choices = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.add_arguments(choices.add_parser(name, help=command.help, description=command.help))
    arguments = parser.parse_args(words)
    try:
        return COMMANDS[arguments.subcommand].run(arguments)
    except ValueError as reason:
        print(f"error: {reason}", file=sys.stderr)
        return COULD_NOT_CHECK
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
