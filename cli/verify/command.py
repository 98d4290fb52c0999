"""`disttrain verify`: checks a run after its launch, and shows the evidence for each check."""

import argparse
import time

from cli.check import Result
from cli.endings import end_in_order
from cli.report import Report
from cli.stack_option import add_stack_of_run
from cli.stack_outputs import RunPlace, refuse_program, run_place, volume_place
from cli.verify.evidence import result
from cli.verify.gather import gather
from cli.verify.judge import judge
from cli.verify.nodes import check_nodes
from cli.verify.restart import restart
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError, UnreachableError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain verify`."""
    add = parser.add_argument
    add_stack_of_run(parser)
    add(
        "--restart",
        action="store_true",
        help="also delete a training pod, and check that the run continues from its checkpoint",
    )
    add(
        "--nodes",
        action="store_true",
        help="check the nodes instead of a run: a smoke test with the free GPUs of each",
    )
    add("--json", action="store_true", help="print JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Check the run, or with --nodes the nodes.

    The exit status is 0 if all is well, 1 if something is wrong, and 2 if something could not be
    checked.

    Raises:
        ValueError: the stack has no run, its run is of the user's own program, or two options
            cannot be used together.
        TaskError: the run has no record on the cluster.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    end_in_order()
    begin = time.monotonic()
    if arguments.nodes:
        if arguments.restart:
            raise ValueError(
                "--restart: it cannot be used with --nodes, which checks no run. Leave one of the "
                "two out"
            )
        volume = volume_place(arguments.stack)
        about, results = f"namespace {volume.namespace}", check_nodes(Api(volume.access), volume)
    else:
        place = run_place(arguments.stack)
        refuse_program(place.program, "verify", "reads what disttrain's own trainer writes")
        about, api = f"run {place.run_path.rpartition('/')[2]}", Api(place.access)
        results = judge(gather(api, place))
        if arguments.restart:
            results.append(_restarted(api, place))
    report = Report(about, results, time.monotonic() - begin, title="verify")
    print(report.json("warning") if arguments.json else report.text(everything=True))
    return report.exit_code("warning")


def _restarted(api: Api, place: RunPlace) -> Result:
    """Check a restart. An error becomes a result, so that the results before it are still shown."""
    try:
        return restart(api, place)
    except (ApiError, TaskError, UnreachableError) as reason:
        return result("restart", "error", str(reason), "./disttrain status shows what the run does")
