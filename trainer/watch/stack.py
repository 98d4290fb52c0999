"""Lets the entrypoint ask a rank for its Python stack, also while the rank waits in C++ code."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import TextIO

_SIGNAL = signal.SIGUSR2
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')
_OURS = re.compile(r"(?:^|/)trainer/(?!watch/).*\.py$")
_kept_open: list[TextIO] = []  # faulthandler uses the descriptors


def answer_with_stack(path: Path) -> None:
    """Let this process append its stack to the file whenever it gets the signal for it."""
    file = path.open("a")
    _kept_open.append(file)
    faulthandler.register(_SIGNAL, file, all_threads=True)


def ask_for_stack(pid: int, path: Path) -> None:
    """Ask a process for its stack.

    The process must have called `answer_with_stack(path)`: the signal ends any other process.
    """
    with suppress(OSError):  # the process may have just ended
        os.truncate(path, 0)
        os.kill(pid, _SIGNAL)


def place_in(stack: str) -> str:
    """Return where the main thread is; empty if the stack has no frame of it.

    That is the innermost frame, such as `threading.py:320 (wait)`. The innermost frame of the
    trainer's code follows, if it is another one.
    """
    thread = stack.strip().split("\n\n")[-1]  # the main thread comes last
    frames = [frame for line in thread.splitlines() if (frame := _FRAME.match(line))]
    if not frames:
        return ""
    ours = next((frame for frame in frames if _OURS.search(frame["file"])), frames[0])
    inner = _words(frames[0])
    return inner if ours is frames[0] else f"{inner}, called from {_words(ours)}"


def _words(frame: re.Match[str]) -> str:
    short = "/".join(Path(frame["file"]).parts[-3:])
    return f"{short}:{frame['line']} ({frame['name']})"
