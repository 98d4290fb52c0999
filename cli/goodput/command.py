"""`disttrain goodput`: shows where the time of a run went, and what it cost."""

import argparse
import sys
from contextlib import redirect_stdout

from cli.endings import end_in_order
from cli.goodput.run_events import fetch_events
from cli.stack_option import add_stack_of_run
from cli.stack_outputs import run_place
from infra.kube.api_server.api import Api
from trainer.events.command import add_goodput_options, goodput


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain goodput`."""
    add_stack_of_run(parser)
    add_goodput_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the account of the run's time; the exit status is 0.

    Raises:
        ValueError: the stack has no run.
        TaskError: the run has no events yet, or they cannot be read.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    end_in_order()
    place = run_place(arguments.stack)
    with redirect_stdout(sys.stderr):  # messages about the pod's start are no part of the table
        events = fetch_events(Api(place.access), place)
    account = goodput(events, arguments.price_per_gpu_hour, arguments.json)
    print(account, flush=True)
    return 0
