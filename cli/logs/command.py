"""`disttrain logs`: shows the lines of all ranks of a run in one stream.

The lines of earlier starts and of lost pods are included.
"""

import argparse
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial

from cli.endings import end_in_order
from cli.logs.explain import explain
from cli.logs.first_error import as_text, first_error
from cli.logs.labels import colour_is_wanted, label, shown
from cli.logs.line import Line
from cli.logs.merged import Merged
from cli.logs.pod_logs import PodLogs
from cli.logs.run_end import is_over, state_text
from cli.logs.selection import Selection, no_such_ranks, parse_pattern, parse_ranks
from cli.logs.since import parse_since
from cli.logs.volume import NoVolumeError, VolumeReader, reading
from cli.stack_option import add_stack_of_run
from cli.stack_outputs import RunPlace, run_place
from infra.kube.api_server.api import Api

MOST_LINES_OF_A_CRASH = 200_000
STATUS_SAYS = "./disttrain status says what the run waits for"
WITHOUT_RANKS = (
    "--rank: there is no line of these ranks. With `per: node` the program starts its ranks "
    "itself, and its lines have no ranks: leave --rank out then"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain logs`."""
    add = parser.add_argument
    add_stack_of_run(parser)
    add("--rank", default="", metavar="RANKS", help="only these global ranks, such as 0,2 or 0-3")
    add(
        "--since",
        default="",
        metavar="TIME",
        help="only newer lines: an age such as 10m, or a time such as 2026-11-22T09:00",
    )
    add("--grep", default="", metavar="REGEX", help="only lines that match this regular expression")
    add(
        "--first-error",
        action="store_true",
        help="show what ended the newest failed start, and on which rank",
    )
    add("--tail", type=int, metavar="LINES", help="begin with the last LINES lines")
    add(
        "--timestamps",
        action="store_true",
        help="show the time of each line, in the local time zone",
    )
    add("--no-follow", action="store_true", help="end when all existing lines have been shown")


def run(arguments: argparse.Namespace) -> int:
    """Show the logs. The exit status is 0; it is 1 if there are no pods and no logs.

    With --first-error, it is 1 if no error was found.

    Raises:
        ValueError: an option is wrong, or the stack has no run.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    end_in_order()
    check(arguments)
    ranks, pattern = parse_ranks(arguments.rank), parse_pattern(arguments.grep)
    place = run_place(arguments.stack)
    if others := no_such_ranks(ranks, place.world_size):
        warn(others)
    api = Api(place.access)
    pods = PodLogs(api, place)
    pods.pods()  # the date of the answer gives `api.now()` the time by the cluster's clock
    since = 0.0
    if arguments.since:
        since = parse_since(arguments.since, api.now().astimezone()).timestamp()
    if arguments.first_error:
        return show_first_error(api, place, Selection(since=since), arguments.timestamps)
    selection = Selection(ranks, since, pattern)
    return show(api, place, selection, arguments)


def check(arguments: argparse.Namespace) -> None:
    """Check the options. Raises ValueError if one cannot be used, or would be ignored."""
    if arguments.since:
        parse_since(arguments.since, datetime.now().astimezone())
    if arguments.tail is not None and arguments.tail < 0:
        raise ValueError(
            f"--tail: {arguments.tail} cannot be used: it is below 0. Give a number of lines, or "
            "leave it out for all of them"
        )
    for name in ("rank", "grep", "tail") if arguments.first_error else ():
        if (value := getattr(arguments, name)) not in ("", None):
            raise ValueError(
                f"--{name}: {value!r} cannot be used with --first-error, which looks at all lines "
                "of all ranks. Leave one of the two out"
            )


def show(api: Api, place: RunPlace, selection: Selection, arguments: argparse.Namespace) -> int:
    """Print the lines that the options select, and return the exit status."""
    tail = -1 if arguments.tail is None else int(arguments.tail)
    follow = not arguments.no_follow
    over = partial(is_over, api, place.namespace, place.owner)
    state = partial(state_text, api, place.namespace, place.owner)
    screen = Screen(has_time=arguments.timestamps)
    with volume_or_none(api, place, selection, tail, follow) as volume:
        if volume is None and selection.ranks:
            warn("--rank is not applied, because the API server does not know the ranks")
            selection = Selection(frozenset(), selection.since, selection.grep)
        merged = Merged(PodLogs(api, place), volume, warn, over)
        enough = tail if selection.grep is None else -1
        lines = merged.history(selection.since, enough)
        if not follow:
            lines = chain_rest(lines, merged)
        wanted = (line for line in lines if selection.has(line))
        screen.show(wanted if tail < 0 else deque(wanted, maxlen=tail))
        is_all = tail and not (arguments.grep or arguments.since)
        if selection.ranks and place.program and merged.has_begun and is_all and not screen.is_used:
            warn(WITHOUT_RANKS)
        if merged.found_any and not merged.has_begun:
            warn(f"{place.workload} has written nothing yet; {STATUS_SAYS}")
        if follow and not merged.found_any and not over():
            warn(f"{place.workload} has no pods yet ({state()}); its lines follow when it starts")
        if follow:
            for some in merged.follow():
                screen.show(line for line in some if selection.has(line))
    if not merged.found_any:
        warn(f"{place.workload} has no pods, and no logs are on the volume ({state()})")
        return 1
    return 0


def show_first_error(api: Api, place: RunPlace, selection: Selection, has_time: bool) -> int:
    """Print what ended the newest failed start, and return the exit status."""
    with volume_or_none(api, place, selection, MOST_LINES_OF_A_CRASH, follow=False) as volume:
        merged = Merged(PodLogs(api, place), volume, warn)
        lines = list(chain_rest(merged.history(selection.since), merged))
    found = first_error(lines)
    if found is None:
        warn("no error was found" + ("" if lines else ": there are no lines"))
        return 1
    text = as_text(found, colour_is_wanted(), has_time, sys.stdout.isatty())
    print(text, flush=True)
    return 0


def chain_rest(lines: Iterator[Line], merged: Merged) -> Iterator[Line]:
    """Yield the history, and then the lines that still wait for their records on the volume."""
    yield from lines
    yield from merged.rest()


@contextmanager
def volume_or_none(
    api: Api, place: RunPlace, selection: Selection, tail: int, follow: bool
) -> Iterator[VolumeReader | None]:
    """Yield the reader of the logs on the volume; None, after a warning, if they cannot be read."""
    with ExitStack() as stack:
        try:
            volume = stack.enter_context(reading(api, place, selection, tail, follow))
        except NoVolumeError as reason:
            warn(
                f"the logs on the volume cannot be read ({reason}): these are the lines that the "
                "API server still has, without ranks"
            )
            volume = None
        yield volume


def warn(text: str) -> None:
    """Print a sentence for the user to standard error, apart from the lines of the log."""
    print(text, file=sys.stderr, flush=True)


class Screen:
    """Prints lines with their labels, and explains what a line means when it first comes."""

    def __init__(self, has_time: bool) -> None:
        self._has_colour, self._has_time = colour_is_wanted(), has_time
        self._on_terminal = sys.stdout.isatty()
        self._explained: set[tuple[str, str]] = set()
        self.is_used = False  # whether a line was shown

    def show(self, lines: Iterable[Line]) -> None:
        """Print the lines. Raises BrokenPipeError if nobody reads the standard output any more."""
        for line in lines:
            self.is_used = True
            self._put(shown(line, self._has_colour, self._has_time, self._on_terminal))
            meaning = explain(line.text)
            if meaning and (label(line), meaning) not in self._explained:
                self._explained.add((label(line), meaning))
                self._put(f"{label(line)}  -> {meaning}")
        sys.stdout.buffer.flush()

    def _put(self, text: str) -> None:
        sys.stdout.buffer.write(text.encode() + b"\n")
