"""`disttrain runs`: lists, compares and deletes the runs on the volume."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.endings import end_in_order
from cli.fetch.folder import write
from cli.os_words import os_words
from cli.runs.in_use import CONFIGS, Users, refusal, users
from cli.runs.program import PROGRAM
from cli.runs.table import as_json, as_table, compared, parse_room, parse_runs, problems
from cli.stack_option import add_stack_of_platform
from cli.stack_outputs import VolumePlace, volume_place
from cli.volume_pod import VolumePod, volume_pod
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import stream
from infra.kube.record import COLLECTION, SELECTOR

TASK = "runs"
NAME = re.compile(r"(\.(push|deleted)-[0-9a-f]{12}-)?[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
KEPT = {
    "locked": "a training holds its lock now. `./disttrain status` shows which one",
    "closed": "the pods' user may not change the folder {path}. Give that to the user that owns "
    "the other runs",
    "link": "it is a link to another folder. Remove the link where it was made",
}
"""The reason why a run was not deleted, by the state in the answer of the pod's program."""
PICTURE_SECONDS = 300.0
MOST_PICTURE_BYTES = 64 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain runs` and of its own subcommands."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_stack_of_platform(parser)
    commands = parser.add_subparsers(
        dest="action", metavar="[COMMAND]", title="commands; without one, the runs are listed"
    )

    def add_command(name: str, text: str, example: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example: ./disttrain runs {name} {example}",
            formatter_class=parser.formatter_class,
        )

    delete = add_command("delete", "delete runs from the volume, permanently", "old-one old-two")
    delete.add_argument("--yes", action="store_true", help="do not ask to type each name")
    text = "show the last metrics of runs, and draw their losses"
    compare = add_command("compare", text, "dev multipod --to losses.svg")
    compare.add_argument(
        "--to", default="", metavar="FILE.svg", help="draw the losses into this file"
    )
    for command, least in ((delete, "one"), (compare, "two")):
        text = f"a run on the volume; {least} or more"
        command.add_argument("names", nargs="+", metavar="NAME", help=text)
        add_stack_of_platform(command, default=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand.

    The exit status is 0; it is 1 if nothing was deleted because the user did not type the name.

    Raises:
        ValueError: a name cannot be used, or a run is in use.
        TaskError: the volume cannot be read.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    end_in_order()
    _check(arguments)
    place = volume_place(arguments.stack)
    if arguments.action == "delete":
        return _delete(place, arguments.names, ask=not arguments.yes)
    if arguments.action == "compare":
        return _compare(place, arguments.names, arguments.to)
    return _list(place, as_programs_want=arguments.json)


def _check(arguments: argparse.Namespace) -> None:
    chosen: list[str] = getattr(arguments, "names", [])
    if arguments.json and arguments.action:
        raise ValueError(
            f"--json: it cannot be used with {arguments.action}. Leave it out, or take the numbers "
            "of all runs: ./disttrain runs --json"
        )
    for name in chosen:
        if not NAME.fullmatch(name):
            raise ValueError(
                f"NAME: {name!r} cannot be used: a run's name has only letters, digits, '.', '_' "
                "and '-', and no path. `./disttrain runs` lists the runs"
            )
        if chosen.count(name) > 1:
            raise ValueError(f"NAME: {name!r} is given twice: name each run once")
    if arguments.action == "compare":
        if len(chosen) < 2:
            raise ValueError(f"NAME: one run ({chosen[0]!r}) cannot be compared: name two or more")
        if arguments.to and not arguments.to.endswith(".svg"):
            raise ValueError(
                f"--to: {arguments.to!r} cannot be used: the plot is an SVG file. Use a name that "
                "ends in .svg"
            )


def _list(place: VolumePlace, *, as_programs_want: bool) -> int:
    with _pod(place) as pod:
        found = _users(pod.api, place)
        answer = pod.ask("list", place.runs_path)
    runs, room = parse_runs(answer, found), parse_room(answer)
    if as_programs_want:
        print(as_json(runs, found, room))
        return 0
    print("\n".join(line for line in (as_table(runs), str(room)) if line))
    for line in problems(runs):
        print(line, file=sys.stderr)
    if found.unknown:
        print(f"not seen who uses them: {'; '.join(found.unknown)}", file=sys.stderr)
    return 0


def _delete(place: VolumePlace, chosen: Sequence[str], *, ask: bool) -> int:
    """Check all runs, ask the user about each of them, and only then delete them."""
    with _pod(place, read_only=False) as pod:
        _refuse(_users(pod.api, place), chosen)
        runs = parse_runs(pod.ask("list", place.runs_path, *chosen), Users())
        _require({run.name for run in runs}, chosen)
        for run in runs if ask else ():
            if not _typed(run.name, run.size_bytes):
                print("that is not its name; nothing was deleted")
                return 1
        # Checked again, because somebody may have run `pulumi up` while the user was asked.
        _refuse(_users(pod.api, place), chosen)
        for run in runs:
            answer = pod.ask("delete", place.runs_path, run.name)
            if reason := KEPT.get(str(answer["state"])):
                raise ValueError(f"run {run.name!r} was not deleted: {reason.format(**answer)}")
            print(f"run {run.name} is deleted", flush=True)
    return 0


def _compare(place: VolumePlace, chosen: Sequence[str], to: str) -> int:
    with _pod(place) as pod:
        runs = parse_runs(pod.ask("list", place.runs_path, *chosen), Users())
        _require({run.name for run in runs}, chosen)
        picture = _picture(pod, [f"{place.runs_path}/{name}" for name in chosen]) if to else ""
    if to:
        _draw(to, picture)
    by_name = {run.name: run for run in runs}
    print(compared([by_name[name] for name in chosen]))
    if to:
        print(f"the losses are drawn in {to}")
    return 0


def _draw(to: str, picture: str) -> None:
    """Write the picture. Raises ValueError if the file cannot be written."""
    try:
        write(Path(to).expanduser(), picture)
    except OSError as error:
        raise ValueError(
            f"--to: {to!r} cannot be written: {os_words(error, to)}. Name a file in a folder of "
            "yours with free space"
        ) from None


def _picture(pod: VolumePod, folders: Sequence[str]) -> str:
    """Let the trainer draw the picture, because its image has the library for plots.

    Raises:
        ValueError: a run has no metrics, or the image's trainer cannot draw several runs.
        UnreachableError: the connection was cut.
    """
    collected = bytearray()

    def take(block: memoryview) -> None:
        if len(collected) > MOST_PICTURE_BYTES:
            raise ValueError("the picture is larger than 64 MiB; compare fewer runs")
        collected.extend(block)

    command = ["python", "-m", "trainer", "plot", *folders, "--output", "-"]
    limit = PICTURE_SECONDS
    ended = stream(
        *(pod.api, pod.path, pod.container, command, take),
        limit_seconds=limit,
        silence_seconds=limit,  # the trainer writes nothing until the picture is drawn
    )
    if ended.exit_code:
        words = ended.stderr.strip()[-300:] or "no error text"
        raise ValueError(f"--to: the trainer could not draw the runs: {words}")
    return collected.decode()


def _pod(place: VolumePlace, *, read_only: bool = True):
    return volume_pod(place, TASK, PROGRAM, read_only=read_only)


def _users(api: Api, place: VolumePlace) -> Users:
    collection = COLLECTION.format(place.namespace)
    records, configs = api.list(collection, SELECTOR), api.list(collection, CONFIGS)
    return users(records, configs, place.run_name, place.stack)


def _refuse(found: Users, chosen: Sequence[str]) -> None:
    for name in chosen:
        if reason := refusal(name, found):
            raise ValueError(reason)


def _require(there: set[str], chosen: Sequence[str]) -> None:
    missing = [name for name in chosen if name not in there]
    if missing:
        raise ValueError(
            f"NAME: {missing[0]!r} is not on the volume. `./disttrain runs` lists the runs"
        )


def _typed(name: str, size_bytes: int) -> bool:
    print(f"run {name}, {size_bytes:,} bytes, is deleted for good.", end=" ")
    print("Type its name to go on: ", end="", flush=True)
    return sys.stdin.readline().strip() == name
