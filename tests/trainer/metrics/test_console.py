"""What rank 0 prints, into a log and at a terminal."""

from __future__ import annotations

import errno
import io
import os
import pty
from types import SimpleNamespace

import pytest

from trainer.metrics.console import Console, bar, duration


def test_a_log_gets_plain_lines_and_no_bar() -> None:
    stream = io.StringIO()
    console = Console(speaks=True, stream=stream)
    console.say("one")
    console.progress(1, 2, "loss 3")
    console.say("two")
    console.end()
    assert stream.getvalue() == "one\ntwo\n"


def test_only_rank_0_speaks() -> None:
    stream = io.StringIO()
    Console(speaks=False, stream=stream).say("one")
    assert stream.getvalue() == ""


def test_a_terminal_gets_a_bar_below_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    seconds = iter([1.0, 1.05, 1.06])
    monkeypatch.setattr(
        "trainer.metrics.console.time", SimpleNamespace(monotonic=lambda: next(seconds))
    )
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        console = Console(speaks=True, stream=stream)
        console.progress(5, 10, "loss 3")
        console.progress(6, 10, "loss 2")  # too soon after the one before
        console.say("checkpoint")
        console.progress(10, 10, "loss 1")
        console.end()
    shown = "".join(iter(lambda: _read(ours), ""))
    os.close(ours)
    half, full = f"\r\033[K{bar(5, 10)} loss 3", f"\r\033[K{bar(10, 10)} loss 1"
    assert shown == f"{half}\r\033[Kcheckpoint\r\n{half}{full}\r\n"
    assert bar(5, 10) == "[############------------] 50% 5/10"


def _read(terminal: int) -> str:
    """Return a part of what a closed terminal still holds, and nothing at its end."""
    try:
        return os.read(terminal, 4096).decode()
    except OSError as error:
        if error.errno != errno.EIO:  # Linux reports the end of a terminal so
            raise
        return ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (4.21, "4.2s"), (185, "3m05s"), (59.99, "60.0s"), (7620, "2h07m")],
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
