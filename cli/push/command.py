"""`disttrain push`: copies a run's folder from this machine to the volume."""

import argparse
from pathlib import Path
from typing import Any, cast

from cli.endings import end_in_order
from cli.fetch.order import NAME
from cli.fetch.partial import PARTIAL
from cli.os_words import os_words
from cli.push import pod_program
from cli.push.local_run import LocalFile, key_of, read_run
from cli.stack_option import add_stack_of_platform
from cli.stack_outputs import VolumePlace, volume_place
from cli.volume_pod import VolumePod, volume_pod
from infra.kube.errors import TaskError
from infra.kube.files.upload import Pod, SentFile, send

TASK = "push"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain push`."""
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="a run's folder, as `./disttrain fetch` makes it")
    add(
        "--run",
        default="",
        metavar="RUN",
        help="name of the run on the volume (default: the folder's name)",
    )
    add_stack_of_platform(parser)


def run(arguments: argparse.Namespace) -> int:
    """Push the run. The exit status is 0: the run is on the volume and verified.

    Raises:
        ValueError: the folder is not complete, or the name is taken.
        TaskError: the files cannot be copied.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    end_in_order()
    folder = Path(arguments.folder)
    name = name_of_run(folder, arguments.run)
    try:
        files = read_run(folder)
    except OSError as error:
        raise ValueError(
            f"FOLDER: {folder} cannot be read: {os_words(error)}. All files of the run must be "
            "readable by you"
        ) from None
    place = volume_place(arguments.stack)
    program = Path(pod_program.__file__).read_text()
    with volume_pod(place, TASK, program, read_only=False) as pod:
        push(pod, place, name, folder, files)
    size = sum(each.size for each in files)
    print(
        f"run {name} is on the volume: {len(files)} files, {size:,} bytes, sha256 of all is right"
    )
    return 0


def name_of_run(folder: Path, chosen: str) -> str:
    """Return the name of the run on the volume: the chosen one, or else the folder's name.

    Raises ValueError if that cannot be the name of a run.
    """
    name = chosen or folder.resolve().name
    if not NAME.fullmatch(name):
        what = "--run" if chosen else "FOLDER: its name"
        raise ValueError(
            f"{what} {name!r} cannot be the run's name on the volume, which has at most 63 "
            "letters, digits, '.', '_' and '-', and begins with a letter or a digit. Give one by "
            "--run"
        )
    return name


def push(
    pod: VolumePod, place: VolumePlace, name: str, folder: Path, files: list[LocalFile]
) -> None:
    """Send the files into a hidden folder beside the runs, then give it the run's name.

    Raises:
        ValueError: the name is taken, another push of it is unfinished, or there is no space.
        TaskError: a file could not be sent.
    """
    incoming = f".push-{key_of(files)}-{name}"
    size = sum(each.size for each in files)
    seen = pod.ask("examine", place.runs_path, name, incoming)
    if reason := refusal(seen, name, incoming, size):
        raise ValueError(reason)
    arriving = {str(each).partition(PARTIAL)[0] for each in seen["arriving"]}
    sender = Pod(pod.api, pod.path, pod.container)
    for file in files:
        target = f"{place.runs_path}/{incoming}/{file.name}"
        sent = SentFile(folder / file.name, target, file.size, file.sha256)
        try:
            send(sent, sender, "the same command", is_new=file.name not in arriving)
        except TaskError as reason:
            raise TaskError(
                f"{reason}. What has arrived stays on the volume for another try. To remove it: "
                f"./disttrain runs delete {incoming}"
            ) from None
    target = f"{place.runs_path}/{name}"
    if not pod.ask("publish", f"{place.runs_path}/{incoming}", target)["ok"]:
        raise ValueError(
            f"{_taken(name)}. It was made while this push was under way, of which the files that "
            f"have arrived are left. To remove them: ./disttrain runs delete {incoming}"
        )


def refusal(seen: dict[str, Any], name: str, incoming: str, size: int) -> str:
    """Return why a push cannot begin; empty if it can. This function is pure.

    Args:
        seen: the answer of the pod's program to `examine`.
        name: the name of the run.
        incoming: the name of the folder for exactly these files; it depends on their contents.
        size: the size of all files, in bytes.
    """
    if seen["exists"]:
        return _taken(name)
    unfinished = cast(dict[str, int], seen["unfinished"])
    others = [each for each in unfinished if each != incoming]
    if others:
        return (
            f"an unfinished push of other files under the name {name!r} is on the volume. Finish "
            f"it, choose another name by --run, or remove it: ./disttrain runs delete {others[0]}"
        )
    needed, free = size - unfinished.get(incoming, 0), cast(int | None, seen["free_bytes"])
    if free is not None and needed > free:
        return (
            f"the volume has {free:,} bytes free, and the run needs {needed:,} more. "
            "`./disttrain runs` shows how large each run is, and `./disttrain runs delete` removes "
            "one"
        )
    return ""


def _taken(name: str) -> str:
    return (
        f"--run: {name!r} cannot be used: the volume has a run of this name. Choose another name, "
        f"or remove that run: ./disttrain runs delete {name}"
    )
