"""How a line is shown: its label, and a colour for each rank on a terminal. Pure."""

import os
import re
import sys
from datetime import datetime

from cli.logs.line import Line

COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # of ANSI terminals; none that means trouble
FAINT = 2
_COLOUR = r"\033\[[\d;:]*m"
# What else steers a terminal (ECMA-48): cursor, screen, title of the window, single signs.
_STEERING = re.compile(
    rf"(?P<colour>{_COLOUR})"
    r"|\033\[[0-?]*[ -/]*[@-~]"
    r"|\033\][^\007\033]*(?:\007|\033\\)"
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
)


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
        on_terminal: whether signs in the text would steer a terminal; colours may.
    """
    head, text = label(line), line.text
    if line.rank is None:
        text = text.removeprefix(f"{head} ")  # the node's own lines begin with it
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
    """The text such that it leaves its label and all other lines as they are.

    Of a progress bar, which goes back to the begin of the line, only the last state would be seen.
    """
    text = text.rstrip("\r").rpartition("\r")[2]
    if text.isprintable():
        return text  # nearly all lines, at once
    text = _STEERING.sub(lambda found: found["colour"] or "", text)
    return f"{text}\033[0m" if "\033" in text else text


def colour_is_wanted() -> bool:
    """Whether standard output is a terminal whose user has not refused colours (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
