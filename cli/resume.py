"""`disttrain resume`: a stopped or replaced run continues from its saved checkpoint."""

import argparse

from cli.endings import end_in_order
from cli.stack_option import add_stack_of_run
from cli.stack_outputs import asker_of, run_place
from infra.kube.api_server.api import Api
from infra.kube.runs.hand_over_plan import WHEN_BUSY
from infra.kube.runs.steer import find_record, resume

WAIT_SECONDS = 24 * 3600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain resume`."""
    add = parser.add_argument
    add_stack_of_run(parser)
    add(
        "--when-busy",
        choices=WHEN_BUSY,
        default="refuse",
        help="if another run has the GPUs: replace it after it has saved, wait for its end, "
        "or refuse (default)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Resume the run. The exit status is 0: the pods come back, or there was nothing to do.

    Raises:
        ValueError: the stack has no run.
        TaskError: the workload of the run is gone, or another run is in the way.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    end_in_order()
    place = run_place(arguments.stack)
    api = Api(place.access)
    record = find_record(api, place.namespace, place.owner)
    nothing_to_do = resume(api, record, arguments.when_busy, WAIT_SECONDS, asker_of(place))
    print(nothing_to_do or f"{record.workload} goes on; ./disttrain status shows how it comes up")
    return 0
