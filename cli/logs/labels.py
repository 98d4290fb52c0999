"""How a line is shown: its label, and a colour for each rank on a terminal. Pure."""

import os
import sys
from datetime import datetime

from cli.logs.line import Line

COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # of ANSI terminals; none that means trouble
FAINT = 2


def label(line: Line) -> str:
    """`[node 1 rank 4]`, or `[node 1]` for a line of the node itself."""
    rank = "" if line.rank is None else f" rank {line.rank}"
    return f"[node {line.node}{rank}]"


def shown(line: Line, has_colour: bool, has_time: bool = False, on_terminal: bool = False) -> str:
    """The line with its label.

    Args:
        line: what is shown.
        has_colour: whether the label has one.
        has_time: whether the time stands before it.
        on_terminal: whether signs in the text would steer a terminal.
    """
    head, text = label(line), line.text
    if line.rank is None:
        text = text.removeprefix(f"{head} ")  # the node's own lines begin with it
    if on_terminal:
        text = _tamed(text)
    if has_time:
        time = datetime.fromtimestamp(line.at).astimezone()
        head = f"{time:%Y-%m-%d %H:%M:%S} {head}"
    if not has_colour:
        return f"{head} {text}"
    colour = FAINT if line.rank is None else COLOURS[line.rank % len(COLOURS)]
    return f"\033[{colour}m{head}\033[0m {text}"


def _tamed(text: str) -> str:
    """The text such that it leaves its label and the next line as they are.

    Of a progress bar, which goes back to the begin of the line, only the last state would be seen.
    """
    text = text.rstrip("\r").rpartition("\r")[2]
    return f"{text}\033[0m" if "\033" in text else text


def colour_is_wanted() -> bool:
    """Whether standard output is a terminal whose user has not refused colours (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
