"""The Python line in which a rank sits, asked for from outside, also while it waits in C++."""

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
_kept_open: list[TextIO] = []  # faulthandler writes to the file's number


def answer_with_stack(path: Path) -> None:
    """From now on this process adds its stack to the file whenever it is asked."""
    file = path.open("a")
    _kept_open.append(file)
    faulthandler.register(_SIGNAL, file, all_threads=True)


def ask_for_stack(pid: int, path: Path) -> None:
    """Ask a process that has called `answer_with_stack(path)`; any other one would end."""
    with suppress(OSError):  # it may have just ended
        os.truncate(path, 0)
        os.kill(pid, _SIGNAL)


def place_in(stack: str) -> str:
    """Where the main thread sits; empty where the stack has none.

    The innermost line, such as `threading.py:320 (wait)`, and after it the innermost one of the
    trainer, where that is another one.
    """
    thread = stack.strip().split("\n\n")[-1]  # the newest thread is the first, the main one last
    frames = [frame for line in thread.splitlines() if (frame := _FRAME.match(line))]
    if not frames:
        return ""
    ours = next((frame for frame in frames if _OURS.search(frame["file"])), frames[0])
    inner = _words(frames[0])
    return inner if ours is frames[0] else f"{inner}, called from {_words(ours)}"


def _words(frame: re.Match[str]) -> str:
    short = "/".join(Path(frame["file"]).parts[-3:])
    return f"{short}:{frame['line']} ({frame['name']})"
