"""Runs a real Kubernetes on this machine, for the demo, the tests and your own experiments."""

import argparse
import sys
from collections.abc import Mapping, Sequence

from sandbox.cluster_commands import CLUSTER_COMMANDS
from sandbox.commands import Command
from sandbox.project_commands import PROJECT_COMMANDS

COMMANDS: Mapping[str, Command] = {**PROJECT_COMMANDS, **CLUSTER_COMMANDS}


def main(words: Sequence[str]) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python3 -m sandbox", description=__doc__, epilog="Examples: docs/sandbox.md"
    )
    choices = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.add_arguments(choices.add_parser(name, help=command.help, description=command.help))
    arguments = parser.parse_args(words)
    try:
        return COMMANDS[arguments.subcommand].run(arguments) or 0
    except (ValueError, RuntimeError, TimeoutError) as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
