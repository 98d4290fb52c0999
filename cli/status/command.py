"""`disttrain status`: shows the platform and all runs on it, on one screen."""

import argparse
import sys
import time
from datetime import datetime

from cli.endings import end_in_order
from cli.pulumi_outputs import selected_stack
from cli.stack_option import add_stack_of_platform
from cli.stack_outputs import ClusterPlace, cluster_place
from cli.status.ended import with_ends
from cli.status.judge import NEEDS_ATTENTION
from cli.status.run_files import Found, read_run_files, require_run
from cli.status.run_files import as_json as run_files_json
from cli.status.run_files import as_text as run_files_text
from cli.status.screen import as_json, as_text
from cli.status.snapshot import AWAY, Snapshot, take_snapshot
from cli.status.storage import ENDING, LOST
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.node.expectations import NAMESPACE
from trainer.events.command import add_price_option

WATCH_SECONDS = 3.0
CLUSTER_UNSEEN = 2  # exit status
PATIENCE_SECONDS = 10.0  # how long a request is tried again; short, because a user waits
ANOTHER_WAY = (
    "Put that kubeconfig in order, or name another one: "
    "./disttrain status --kubeconfig FILE --namespace {}"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain status`."""
    add = parser.add_argument
    add(
        "run",
        nargs="?",
        default="",
        metavar="RUN",
        help="name of a run, or of the stack that has it; only that run is shown",
    )
    add_stack_of_platform(parser)
    add("--kubeconfig", default="", help="kubeconfig of the cluster, for users without a stack")
    add("--context", default="", help="context in that kubeconfig (default: its current one)")
    add(
        "--namespace",
        default="",
        help=f"namespace of the platform, with --kubeconfig (default: {NAMESPACE})",
    )
    add("--json", action="store_true", help="print JSON, for programs")
    add("--watch", action="store_true", help=f"refresh every {WATCH_SECONDS:g} s until Ctrl-C")
    add_price_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the status.

    The exit status is 0 if all is well, 1 if a run, a node or a claim needs attention, and 2 if the
    cluster does not answer.

    Raises:
        ValueError: the stack is not up, there is no such run, the cluster refuses, the kubeconfig
            of --kubeconfig cannot be used, or neither the cluster nor the machine with the data
            answers.
    """
    end_in_order()
    if arguments.kubeconfig and arguments.stack:
        raise ValueError(
            f"--stack: {arguments.stack!r} cannot be used with --kubeconfig: each of them names a "
            "cluster. Leave one of them out"
        )
    for name in () if arguments.kubeconfig else ("context", "namespace"):
        if value := getattr(arguments, name):
            raise ValueError(
                f"--{name}: {value!r} cannot be used without --kubeconfig: a stack has its own. "
                "Leave it out, or name the cluster by --kubeconfig FILE"
            )
    if arguments.kubeconfig:
        access = Access(kubeconfig_path=arguments.kubeconfig, context=arguments.context)
        place = ClusterPlace(access, arguments.namespace or NAMESPACE)
    else:
        place = cluster_place(arguments.stack)
    api = Api(place.access, PATIENCE_SECONDS)
    try:
        api.read_kubeconfig()  # fails, for instance, if the file was removed with its cluster
    except ValueError as reason:
        if arguments.kubeconfig:
            raise
        return _show_files(arguments, f"{reason}. {ANOTHER_WAY.format(place.namespace)}")
    try:
        return _show(api, place, arguments)
    except ApiError as reason:
        raise ValueError(f"the cluster could not be asked: {reason}") from None
    except UnreachableError as reason:
        if arguments.kubeconfig:
            raise ValueError(f"the cluster could not be asked: {reason}") from None
        return _show_files(arguments, str(reason))


def _show_files(arguments: argparse.Namespace, reason: str) -> int:
    """Show what the runs' own files say, if the machine with the data can be reached.

    `reason` is why the cluster could not be asked. Returns the exit status.
    """
    # Imported here, because the import of Pulumi's SDK is slow, and is needed only here.
    from cli.ask_host import UnreachableError as HostUnreachableError
    from cli.stack_plan import plan_of_stack

    try:
        plan = plan_of_stack(arguments.stack or selected_stack(), asks_cluster=False)
        found = read_run_files(plan, arguments.run)
    except (ValueError, HostUnreachableError) as why:
        raise ValueError(
            f"the cluster could not be asked: {reason}. The runs' own files could not be read "
            f"either: {why}"
        ) from None
    if arguments.run:
        require_run(arguments.run, found, reason)
        found = Found(found.runs)
    json_wanted = arguments.json
    print(run_files_json(found, reason) if json_wanted else run_files_text(found, plan, reason))
    return CLUSTER_UNSEEN


def exit_status(seen: Snapshot) -> int:
    """Return 1 if a run, a node or a claim needs attention, and 0 if none does."""
    runs = any(run.state in NEEDS_ATTENTION for run in seen.runs)
    machines = any(found.needs_attention for found in seen.platform.findings)
    claims = any(claim.phase in (LOST, ENDING) for claim in seen.platform.claims)
    return int(runs or machines or claims or bool(seen.platform.not_ready))


def _show(api: Api, place: ClusterPlace, arguments: argparse.Namespace) -> int:
    price: float | None = arguments.price_per_gpu_hour
    if arguments.watch and not arguments.json and sys.stdout.isatty():
        # Imported here, so that a status without --watch does not wait for the import.
        from rich.console import Console

        from cli.status.live import is_possible, watch

        console = Console()
        if is_possible(console):
            watch(lambda: _snapshot(api, place, arguments), console, WATCH_SECONDS, price)
    seen, now = _snapshot(api, place, arguments)
    if seen.missing:
        raise ValueError(seen.missing)
    print(_text(seen, now, arguments), flush=True)
    if not arguments.watch:
        return exit_status(seen)
    while True:
        time.sleep(WATCH_SECONDS)
        try:
            text = _text(*_snapshot(api, place, arguments), arguments)
        except AWAY as reason:
            text = f"the cluster was not seen: {reason}"
            if arguments.json:
                text = run_files_json(Found(()), str(reason))
        print(text, flush=True)


def _snapshot(
    api: Api, place: ClusterPlace, arguments: argparse.Namespace
) -> tuple[Snapshot, datetime]:
    """Take a snapshot of the cluster, and return it with the API server's time.

    It raises the errors of `take_snapshot`.
    """
    seen = take_snapshot(api, place.namespace, with_volume=arguments.json, wanted=arguments.run)
    return with_ends(api, seen, place.namespace, place.asker), api.now()


def _text(seen: Snapshot, now: datetime, arguments: argparse.Namespace) -> str:
    """Return the text or the JSON to print. This function is pure."""
    price: float | None = arguments.price_per_gpu_hour
    if arguments.json:
        return as_json(seen.platform, seen.runs, seen.unseen, now, price)
    return as_text(seen.platform, seen.runs, seen.unseen, now, price, missing=seen.missing)
