"""`disttrain extend`: makes a run train for more steps, whether it trains now or is finished."""

import argparse
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from cli.pulumi_outputs import PROJECT
from cli.stack_option import add_stack_of_run
from cli.stack_outputs import run_length

SETTING = "run.train.max_steps"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain extend`."""
    add = parser.add_argument
    add(
        "--steps",
        type=int,
        required=True,
        help="new number of steps, counted from the run's beginning",
    )
    add_stack_of_run(parser)
    add(
        "--config-file",
        default="",
        help="the stack's settings, if they are not in Pulumi.STACK.yaml",
    )
    add("--yes", action="store_true", help="do not ask before the update")


def run(arguments: argparse.Namespace) -> int:
    """Set the new number of steps and run `pulumi up`; return the exit status of pulumi.

    Raises:
        ValueError: the stack has no run, the run already has that many steps, or there is no such
            settings file; nothing was changed.
    """
    before = run_length(arguments.stack)
    if arguments.steps <= before:
        raise ValueError(
            f"--steps: {arguments.steps} cannot be used: the run has {before} steps. "
            "Give more, as --steps counts from the run's beginning"
        )
    stack, file = arguments.stack, _config_file(arguments.config_file)
    to_set, to_update = commands(arguments.steps, stack, file, yes=arguments.yes)
    if status := _run(to_set):
        return status
    if status := _run(to_update):
        back = shlex.join(commands(before, stack, file, yes=False)[0])
        print(
            f"error: `pulumi up` has not ended well, and the setting {SETTING} is "
            f"{arguments.steps} now: the next `pulumi up` uses it, and so may the run already, as "
            f"./disttrain status shows. To go back: {back}",
            file=sys.stderr,
        )
        return status
    return 0


def _config_file(given: str) -> str:
    """Return the absolute path of the settings file; empty if none is given.

    The path has to be absolute because pulumi runs in the project's folder.
    Raises ValueError if there is no such file.
    """
    path = Path(given).expanduser()
    if given and not path.is_file():
        raise ValueError(
            f"--config-file: {given!r} cannot be used: there is no such file. Name the file with "
            "the stack's settings, or leave the option out for Pulumi.STACK.yaml"
        )
    return str(path.resolve()) if given else ""


def _run(command: list[str]) -> int:
    """Print a command, run it and return its exit status.

    Ctrl-C reaches pulumi too, which then needs some time to end. Without a signal handler, Python
    would kill pulumi a moment later, and the stack would stay locked.
    """
    print(f"$ {shlex.join(command)}", flush=True)
    before = signal.signal(signal.SIGINT, _wait_on)  # pulumi itself still gets the signal
    try:
        status = subprocess.run(command, cwd=PROJECT, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    return status if status >= 0 else 128 - status  # as a shell reports the end by a signal


def _wait_on(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the command gets the signal too, and this program waits for the command's end."""


def commands(steps: int, stack: str, config_file: str, *, yes: bool) -> list[list[str]]:
    """Return the two commands that a user would type: set the number of steps, then update.

    This function is pure.
    """
    where = ["--stack", stack] if stack else []
    where += ["--config-file", config_file] if config_file else []
    return [
        ["pulumi", "config", "set", "--path", f"disttrain:{SETTING}", str(steps), *where],
        ["pulumi", "up", *where, *(["--yes"] if yes else [])],
    ]
