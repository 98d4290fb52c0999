"""`disttrain dashboard`: serves a page on this machine that shows all runs and changes none."""

import argparse
from contextlib import AbstractContextManager, ExitStack

from cli.dashboard.pod_keeper import DEADLINE_SECONDS, PodKeeper
from cli.dashboard.queries import Queries
from cli.dashboard.server import serving
from cli.dashboard.source import Source
from cli.endings import end_in_order
from cli.port_option import add_port, check_port, port_to_have
from cli.stack_option import add_stack_of_platform
from cli.stack_outputs import VolumePlace, volume_place
from cli.stack_pod import trainer_variables
from cli.volume_pod import VolumePod, volume_pod

PORT = 8642
TASK = "dashboard"
START_SECONDS = 60.0  # the nodes have the image; a pod that needs longer has found no free node


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain dashboard`."""
    add_stack_of_platform(parser)
    add_port(parser, PORT)


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C or another signal ends the command.

    Raises:
        ValueError: the stack is not up, or the port is taken.
    """
    end_in_order()
    check_port(arguments.port)  # first, because the next line takes the time of Pulumi
    place = volume_place(arguments.stack)
    keeper = PodKeeper(lambda: open_pod(place))
    source = Source(Queries(place, keeper), place.namespace)
    with ExitStack() as stack:
        with port_to_have(arguments.port):
            server = stack.enter_context(serving(arguments.port, source))
        print(f"The runs are shown at {server.address}; Ctrl-C ends it", flush=True)
        keeper.keep()


def open_pod(place: VolumePlace) -> AbstractContextManager[VolumePod]:
    """Start a pod that can read the volume; each query runs its own program in it."""
    return volume_pod(
        place,
        TASK,
        "",
        deadline_seconds=DEADLINE_SECONDS,
        environment=trainer_variables(place),
        start_seconds=START_SECONDS,
    )
