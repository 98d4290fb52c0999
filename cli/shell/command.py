"""`disttrain shell`: starts a shell, or runs a command, in the pod of a rank.

The shell or command has the environment variables of the rank.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from cli.endings import end_in_order
from cli.pod_answer import ask_in_pod
from cli.pod_facts import RANKS, node_of, number_told
from cli.shell import rank_program
from cli.stack_option import add_stack_of_run
from cli.stack_outputs import RunPlace, run_place
from cli.status.current_pods import current_pods
from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import LIMIT_SECONDS, stream
from infra.kube.api_server.terminal import interact
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.objects import Json, container_of, is_running, name_of
from infra.kube.paths import PODS, pod_path
from infra.kube.runs.steer import find_record

PROGRAM = Path(rank_program.__file__).read_text()


@dataclass(frozen=True)
class RankProcess:
    """The process of a rank.

    Args:
        pod: the name of its pod.
        container: the name of the pod's container.
        pid: the process id of the rank in the container.
    """

    pod: str
    container: str
    pid: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain shell`."""
    add = parser.add_argument
    add_stack_of_run(parser)
    add("--rank", type=int, default=0, help="global rank (default: 0)")
    add(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND ...",
        help="run this command instead of a shell; it has the variables of the rank, and in "
        "RANK_PID the rank's process id",
    )
    parser.set_defaults(hint=". A command goes after --, such as shell --rank 0 -- ps -ef")


def run(arguments: argparse.Namespace) -> int:
    """Run the shell or the command, and return its exit status.

    Raises:
        ValueError: the stack has no run, the rank does not run, or there is no terminal for a
            shell.
        TaskError: the run has no record on the cluster.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    end_in_order()  # so that a signal, too, restores the terminal's settings
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not words and not has_terminal:
        raise ValueError(
            "a shell needs a terminal, and standard input or output is none. Give a command: "
            "./disttrain shell --rank 0 -- ps"
        )
    place = run_place(arguments.stack)
    api = Api(place.access)
    found = process_of(find_ranks(api, place, arguments.rank), arguments.rank)
    command = ["python3", "-c", PROGRAM, "beside", str(found.pid), *words]
    path = pod_path(place.namespace, found.pod)
    if has_terminal:
        where = f"rank {arguments.rank} is process {found.pid} of pod {found.pod}"
        print(f"{where}; its variables are set, RANK_PID={found.pid}", file=sys.stderr, flush=True)
        return interact(api, path, found.container, command, sys.stdin.fileno())
    ended = stream(
        api,
        path,
        found.container,
        command,
        pass_on,
        silence_seconds=LIMIT_SECONDS,  # the user can press Ctrl-C if the command takes too long
    )
    sys.stderr.write(ended.stderr)
    return ended.exit_code


def pass_on(block: memoryview) -> None:
    """Write a block to standard output at once, because the next one may come much later."""
    sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def find_ranks(api: Api, place: RunPlace, wanted: int | None = None) -> dict[int, RankProcess]:
    """Find the ranks that run, by the processes in the pods.

    A pod that cannot be asked, for instance on a lost machine, is an error only if the wanted rank
    is found in no other pod. The pod that should have the wanted rank is asked first.

    Args:
        api: the cluster.
        place: the place of the run.
        wanted: the rank to find; once it is found, no further pod is asked. None for all ranks.

    Raises:
        TaskError: there is no such run, or a pod cannot be asked.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    find_record(api, place.namespace, place.owner)  # an error if there is no such run
    selector = names.training_selector(place.owner)
    pods = current_pods(api.list(PODS.format(place.namespace), selector))
    running = sorted(filter(is_running, pods), key=name_of)
    found, problem = dict[int, RankProcess](), None
    for pod in sorted(running, key=lambda pod: not _should_have(pod, wanted)):
        try:
            found |= _ranks_of(api, place.namespace, pod)
        except (ApiError, TaskError, UnreachableError) as reason:
            problem = problem or reason
        if wanted in found:
            return found
    if problem:
        raise problem
    return found


def _should_have(pod: Json, rank: int | None) -> bool:
    """Whether a pod has this rank, if no other pod has taken its place."""
    count = number_told(pod, RANKS) or 1
    return rank is not None and node_of(pod) == rank // count


def _ranks_of(api: Api, namespace: str, pod: Json) -> dict[int, RankProcess]:
    name = name_of(pod)
    failed = f"pod {name} cannot say which ranks it has"
    pids: dict[str, int] = ask_in_pod(api, namespace, pod, PROGRAM, "find", failed=failed)
    return {int(rank): RankProcess(name, container_of(pod), pid) for rank, pid in pids.items()}


def process_of(found: dict[int, RankProcess], rank: int) -> RankProcess:
    """Return the process of a rank. This function is pure. Raises ValueError if it does not run."""
    if not found:
        raise ValueError(
            f"--rank: {rank} cannot be used: no rank of the run is running. ./disttrain status "
            "says what the run does"
        )
    if rank not in found:
        which = ", ".join(str(number) for number in sorted(found))
        raise ValueError(
            f"--rank: {rank} cannot be used: the ranks that run are {which}. Choose one of them; "
            "./disttrain status says what the run does"
        )
    return found[rank]
