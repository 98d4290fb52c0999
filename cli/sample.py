"""`disttrain sample`: generates text with the newest checkpoint of a run, in a short-lived pod."""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout

from cli.endings import end_in_order
from cli.fetch.order import checked_name
from cli.followed_log import followed_log
from cli.stack_option import add_stack_of_platform
from cli.stack_outputs import RunPlace, VolumePlace, refuse_program, run_place, volume_place
from cli.stack_pod import stack_pod, trainer_variables
from infra.kube.api_server.api import Api
from infra.kube.files.task_pod import running
from infra.kube.objects import part, parts
from infra.kube.pods.report import FATAL_EXIT_CODE

TASK = "sample"
LIMIT_SECONDS = 1800
STATUS_SECONDS = 30
OWN_END = "Error"  # Kubernetes' reason for a container that ended by itself with another status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain sample`."""
    add = parser.add_argument
    add_stack_of_platform(parser)
    add(
        "words",
        nargs=argparse.REMAINDER,
        metavar="[RUN] [-- OPTION ...]",
        help="name of a run on the volume (default: that of the stack), and options of the "
        "trainer's command `sample`, such as -- --max-new-tokens 200",
    )
    parser.set_defaults(hint=". Options of the trainer go after --, such as sample -- --seed 1")


def run(arguments: argparse.Namespace) -> int:
    """Generate the text; the exit status is that of the trainer's command `sample`.

    Raises:
        ValueError: the stack has no run, its run is of the user's own program, or RUN is not a
            valid name of a run.
        TaskError: the pod does not start.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    end_in_order()
    name, options = split(arguments.words)
    if name:
        volume = volume_place(arguments.stack)
        status = sample(Api(volume.access), volume, f"{volume.runs_path}/{name}", options)
        if status == FATAL_EXIT_CODE:
            print("`./disttrain runs` shows which runs have a checkpoint", file=sys.stderr)
        return status
    place = run_place(arguments.stack)
    refuse_program(place.program, "sample", "reads the checkpoints of disttrain's own trainer")
    return sample(Api(place.access), place, place.run_path, options)


def split(words: Sequence[str]) -> tuple[str, list[str]]:
    """Split the words into the name of a run and the options of the trainer.

    The name is empty if none is given. This function is pure.
    Raises ValueError if the name is not valid, or if options follow it without `--`.
    """
    has_name = bool(words) and not words[0].startswith("-")
    if has_name and len(words) > 1 and words[1] != "--":
        raise ValueError(
            f"RUN: {words[1]!r} cannot follow it. Options of this command come before RUN, such as "
            f"sample --stack dev {words[0]}, and those of the trainer after --, such as sample "
            f"{words[0]} -- --seed 1"
        )
    options = list(words[has_name:])
    if options[:1] == ["--"]:  # A later one is for the trainer.
        del options[0]
    return checked_name(words[0]) if has_name else "", options


def sample(api: Api, place: RunPlace | VolumePlace, run_path: str, options: Sequence[str]) -> int:
    """Run the pod, print what it writes, remove it, and return the exit code of its container.

    Args:
        api: the cluster.
        place: the place of the volume.
        run_path: the run's folder, as pods see it.
        options: the options of the trainer's command `sample`.
    """
    pod = stack_pod(
        place,
        TASK,
        ("python", "-m", "trainer", "sample", "--run-dir", run_path, *options),
        deadline_seconds=LIMIT_SECONDS,
        environment=trainer_variables(place),
    )
    with ExitStack() as stack:
        with redirect_stdout(sys.stderr):  # messages about the start are no part of the text
            path = stack.enter_context(running(api, pod))
        show_log(api, path)
        return exit_code(api, path)


def show_log(api: Api, path: str) -> None:
    """Copy the pod's log to standard output until it ends.

    Raises:
        BrokenPipeError: nobody reads the standard output any more.
        ApiError, UnreachableError: the log cannot be read to its end.
    """
    for block in followed_log(api, path, TASK):
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


def exit_code(api: Api, path: str) -> int:
    """Return the exit code of the pod's container; 1 if the pod was lost.

    If something else ended the container, such as a lack of memory or the deadline, this function
    prints what it was, because the pod's log cannot say it.
    """
    end = time.monotonic() + STATUS_SECONDS  # the status follows a moment after the log's end
    words = "its end was not seen"
    while time.monotonic() < end:
        item = api.get(path)
        if item is None:
            words = "somebody has deleted it"
            break
        status = part(item, "status")
        for container in parts(status, "containerStatuses"):
            ended = part(container, "state", "terminated")
            if ended:
                reason = str(status.get("reason") or ended.get("reason") or OWN_END)
                code = int(ended.get("exitCode", 1))
                if code and reason != OWN_END:
                    _tell_end(": ".join(filter(None, (reason, str(status.get("message") or "")))))
                return code
        time.sleep(0.5)
    _tell_end(words)
    return 1


def _tell_end(why: str) -> None:
    print(f"the pod has not come to its end: {why}", file=sys.stderr, flush=True)
