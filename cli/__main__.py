"""Commands to examine a host, a cluster or a run, and to steer a run."""

import argparse
import errno
import importlib
import io
import re
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from cli.endings import BROKEN_PIPE, REFUSED, close_output
from cli.parser import Parser
from infra.kube.errors import ApiError, TaskError, UnreachableError


@dataclass(frozen=True)
class Command:
    """A subcommand: its help text, the name of its module, and an example of its use.

    The example is what follows `./disttrain` on the command line. The module has `add_arguments`,
    which takes the parser, and `run`, which takes the arguments and returns the exit status. A
    parser may have the default `hint`, which follows the error about an unknown option. Only
    the module of the command that the user has typed is imported: to import all of them takes half
    a second, and `pulumi up` starts the doctor once for each machine.
    """

    help: str
    module: str
    example: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this command."""
        importlib.import_module(self.module).add_arguments(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Run this command and return its exit status."""
        return importlib.import_module(self.module).run(arguments)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps examples as they are written, and never breaks a line at the hyphen of an option."""

    def add_argument(self, action: argparse.Action) -> None:
        """Measure the names of the subcommands with their indentation, which argparse forgets.

        Without this, the help text of a subcommand with a long name starts on the next line.
        """
        super().add_argument(action)
        if action.nargs == argparse.PARSER:
            self._action_max_length += self._indent_increment

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


COMMANDS: Mapping[str, Command] = {
    "completion": Command(
        "print a script for your shell that completes these commands",
        "cli.completion",
        'completion bash >"$HOME/.local/share/bash-completion/completions/disttrain"',
    ),
    "dashboard": Command(
        "show all runs on a page in a browser on this machine",
        "cli.dashboard.command",
        "dashboard --port 8700",
    ),
    "doctor": Command(
        "find problems of a host and its cluster, and how to fix them",
        "cli.doctor.command",
        "doctor --stack dev",
    ),
    "extend": Command("make a run train for more steps", "cli.extend", "extend --steps 8000"),
    "fetch": Command(
        "copy a run's results and a verified checkpoint to this machine",
        "cli.fetch.command",
        "fetch dev --checkpoint best --to ./results",
    ),
    "goodput": Command(
        "show where the time of a run went, and what it cost",
        "cli.goodput.command",
        "goodput --price-per-gpu-hour 1.20",
    ),
    "logs": Command(
        "show and follow the logs of all ranks of a run", "cli.logs.command", "logs --tail 20"
    ),
    "monitoring": Command(
        "print a dashboard for Grafana, or alert rules for Prometheus",
        "cli.monitoring",
        "monitoring dashboard >disttrain.json",
    ),
    "push": Command(
        "copy a run's folder from this machine to the volume",
        "cli.push.command",
        "push ./runs/dev --run dev-again",
    ),
    "resume": Command(
        "continue a stopped or suspended run", "cli.resume", "resume --stack multipod"
    ),
    "runs": Command(
        "list, compare or delete the runs on the volume",
        "cli.runs.command",
        "runs compare dev multipod --to losses.svg",
    ),
    "sample": Command(
        "generate text with a run's newest checkpoint",
        "cli.sample",
        'sample -- --prompt "To be" --max-new-tokens 200',
    ),
    "shell": Command(
        "open a shell, or run a command, in the pod of a rank",
        "cli.shell.command",
        "shell --rank 5 -- cat /proc/meminfo",
    ),
    "status": Command(
        "show the platform, and the state and progress of all its runs or of one",
        "cli.status.command",
        "status --watch",
    ),
    "stop": Command(
        "let a run save a checkpoint, and free its GPUs", "cli.stop", "stop --stack dev"
    ),
    "tensorboard": Command(
        "show TensorBoard of all runs in a browser on this machine",
        "cli.tensorboard",
        "tensorboard --port 7007",
    ),
    "verify": Command(
        "check a run after its launch, and show the evidence for each point",
        "cli.verify.command",
        "verify --stack dev --restart",
    ),
}


EPILOG = """\
`./disttrain COMMAND --help` shows the options of a command, and an example.
What to do when something is wrong: docs/operations.md"""


NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room for the output in its file
MISSING_RIGHT = re.compile(r" cannot \S+ resource ")
"""Kubernetes' words for a right that the user lacks. It refuses with the same status for other
reasons, such as a quota."""
HOW_TO_GET_A_RIGHT = (
    ". Ask an administrator of the cluster for this right; what each command needs is listed in "
    'docs/operations.md, "Users who may only read"'
)


def parser_of(wanted: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser of all subcommands, with the options of the `wanted` ones only."""
    parser = Parser(
        prog="./disttrain", description=__doc__, epilog=EPILOG, formatter_class=HelpFormatter
    )
    choices = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        example = f"example: ./disttrain {command.example}"
        inner = choices.add_parser(
            name,
            help=command.help,
            description=command.help,
            epilog=example,
            formatter_class=HelpFormatter,
        )
        inner.set_defaults(refuse=inner.error)
        if name in wanted:
            command.add_arguments(inner)
    return parser


def main(words: Sequence[str]) -> int:
    """Run the subcommand in `words`, which are the words of the command line; return its status.

    A command raises ValueError for a mistake that its user can correct, and lets errors of the
    cluster (ApiError, TaskError, UnreachableError) through. Each of them is printed here.
    """
    # A character that the terminal's encoding lacks is printed as an escape instead of an error.
    if getattr(sys.stdout, "errors", "") == "strict":
        cast(io.TextIOWrapper, sys.stdout).reconfigure(errors="backslashreplace")
    try:
        try:
            return _answer(words)
        # The rest of the output is written here: at its exit Python would print an error about a
        # closed pipe.
        finally:
            if sys.stdout:  # None, if this process was started without a standard output
                sys.stdout.flush()
    except BrokenPipeError:
        close_output()
        return BROKEN_PIPE
    except OSError as error:
        # An error about another file has the name of that file.
        if error.errno not in NOT_WRITTEN or error.filename is not None:
            raise
        close_output()
        print(
            f"error: the output cannot be written: {error.strerror}. Make room there, or write it "
            "to another place",
            file=sys.stderr,
        )
        return REFUSED


def _answer(words: Sequence[str]) -> int:
    """Parse the command line, run the command and return its exit status.

    Raises BrokenPipeError if nobody reads the standard output any more.
    """
    parser = parser_of(words[:1])
    if not words:
        parser.print_help(sys.stderr)
        return REFUSED
    arguments, unknown = parser.parse_known_args(words)
    if unknown:  # the subcommand's parser prints its own usage; argparse would print the program's
        arguments.refuse(f"unrecognized arguments: {' '.join(unknown)}{_hint(arguments, unknown)}")
    try:
        return COMMANDS[arguments.subcommand].run(arguments)
    except (ValueError, ApiError, TaskError, UnreachableError) as reason:
        advice = HOW_TO_GET_A_RIGHT if MISSING_RIGHT.search(str(reason)) else ""
        print(f"error: {reason}{advice}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return 130


def _hint(arguments: argparse.Namespace, unknown: Sequence[str]) -> str:
    """Return the end of the error about unknown words of the command line."""
    hint: str = getattr(arguments, "hint", "")
    if hint or unknown[0].startswith("-") or not hasattr(arguments, "stack"):
        return hint
    return f". A stack is named by --stack: ./disttrain {arguments.subcommand} --stack {unknown[0]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
