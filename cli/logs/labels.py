"""Formats a log line: with its label, and on a terminal with a colour for each rank.

Except for `colour_is_wanted`, the functions are pure.
"""

import os
import re
import sys
from datetime import datetime

from cli.logs.line import Line
from infra.command_line import CONTROL_SEQUENCE

COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # ANSI colours, without red
FAINT = 2
_COLOUR = r"\033\[[\d;:]*m"
_STEERING = re.compile(rf"(?P<colour>{_COLOUR})|{CONTROL_SEQUENCE}")


def label(line: Line) -> str:
    """Return `[node 1 rank 4]`, or `[node 1]` for a line of the node itself."""
    rank = "" if line.rank is None else f" rank {line.rank}"
    return f"[node {line.node}{rank}]"


def shown(line: Line, has_colour: bool, has_time: bool = False, on_terminal: bool = False) -> str:
    """Return the line with its label.

    Args:
        line: the line.
        has_colour: whether the label has a colour.
        has_time: whether the time is put before the label.
        on_terminal: whether the text goes to a terminal. Then its control sequences are removed,
            except for colours.
    """
    head, text = label(line), line.text
    if line.rank is None:
        text = text.removeprefix(f"{head} ")  # the node's own lines already begin with the label
    if on_terminal:
        text = tamed(text)
    if has_time:
        time = datetime.fromtimestamp(line.at).astimezone()
        head = f"{time:%Y-%m-%d %H:%M:%S} {head}"
    if not has_colour:
        return f"{head} {text}"
    colour = FAINT if line.rank is None else COLOURS[line.rank % len(COLOURS)]
    return f"\033[{colour}m{head}\033[0m {text}"


def tamed(text: str) -> str:
    """Remove control sequences, so that the text changes neither its label nor other lines.

    A progress bar goes back to the beginning of the line for each of its states. Only the last
    state is kept, which is what a terminal would show.
    """
    text = text.rstrip("\r").rpartition("\r")[2]
    if text.isprintable():
        return text  # one quick check is enough for nearly all lines
    text = _STEERING.sub(lambda found: found["colour"] or "", text)
    return f"{text}\033[0m" if "\033" in text else text


def colour_is_wanted() -> bool:
    """Whether standard output is a terminal, and NO_COLOR (no-color.org) is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
