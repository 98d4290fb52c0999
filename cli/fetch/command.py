"""`disttrain fetch`: brings the results of a run from the volume to this machine."""

import argparse
import re
import sys
from pathlib import Path

from cli.endings import end_in_order
from cli.fetch import pod_program
from cli.fetch.bring import Bringer, Brought
from cli.fetch.folder import Folder
from cli.fetch.pod_source import AUTO, EXEC, PodSource
from cli.fetch.progress import duration
from cli.fetch.wanted import parse_choice
from cli.stack_outputs import volume_place
from cli.volume_pod import volume_pod

TASK = "fetch"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # as trainer/config/option.py has it
MOST_STREAMS = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `disttrain fetch`."""
    add = parser.add_argument
    add("run", nargs="?", default="", metavar="RUN", help="name of the run (default: the stack's)")
    add("--stack", default="", help="a stack on the platform (default: the selected stack)")
    add(
        "--checkpoint",
        default="latest",
        metavar="WHICH",
        help="best, latest, none, or the number of a step (default: latest)",
    )
    add("--to", default="", metavar="FOLDER", help="where it goes (default: ./runs/RUN)")
    add(
        "--by",
        choices=(AUTO, EXEC),
        default=AUTO,
        help="exec: never by the API server's proxy to pods, which is faster where it works",
    )
    add("--streams", type=int, default=4, metavar="N", help="transfers at once (default: 4)")


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0: everything is here and verified.

    Raises:
        ValueError: an option or the folder cannot be used.
        TaskError: the run or its checkpoint cannot be brought.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    end_in_order()
    choice = parse_choice(arguments.checkpoint)
    if not 1 <= arguments.streams <= MOST_STREAMS:
        raise ValueError(
            f"--streams: {arguments.streams} cannot be used: it must be 1 to {MOST_STREAMS}"
        )
    place = volume_place(arguments.stack)
    name = checked_name(arguments.run or place.run_name)
    folder = Folder(Path(arguments.to or f"runs/{name}"), name)
    try:
        with folder.alone(), volume_pod(place, TASK, program()) as pod:
            source = PodSource(pod, arguments.by, say)
            path = f"{place.runs_path}/{name}"
            brought = Bringer(source, path, folder, choice, arguments.streams, say).bring()
    except OSError as error:
        raise ValueError(f"--to {folder.root}: it cannot be written: {error}") from None
    print(summary(brought, name, folder.root))
    return 0


def checked_name(name: str) -> str:
    """The name of a run. Raises ValueError: it is none."""
    if not name:
        raise ValueError("the stack has no run of its own: name one. `./disttrain runs` lists them")
    if not NAME.fullmatch(name):
        raise ValueError(
            f"RUN: {name!r} cannot be used: a run's name has letters, digits, '.', '_' and '-' "
            "alone. `./disttrain runs` lists the runs on the volume"
        )
    return name


def program() -> str:
    """The text of the pod's program."""
    return Path(pod_program.__file__).read_text()


def say(text: str) -> None:
    """A line that is no result; in one piece, because several threads say something."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def summary(brought: Brought, name: str, folder: Path) -> str:
    """What is said at the end. Pure."""
    checkpoint = brought.checkpoint
    what = "without a checkpoint"
    if checkpoint:
        loss = (
            "" if checkpoint.val_loss is None else f" (validation loss {checkpoint.val_loss:.4f})"
        )
        what = f"with checkpoint step {checkpoint.step}{loss}"
    rate = f", {brought.sent / brought.seconds / 1e6:,.1f} MB/s" if brought.sent else ""
    return (
        f"run {name} {what} is in {folder}/\n"
        f"{brought.files} files, {brought.size:,} bytes, sha256 of all is right; "
        f"{brought.sent:,} bytes sent in {duration(brought.seconds)}{rate}"
    )
