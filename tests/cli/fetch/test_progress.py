"""The line that says how far a transfer is, and how long it will still take."""

import io

import pytest

from cli.fetch.progress import Progress, duration, progress_line


class Terminal(io.StringIO):
    """A text buffer that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_line_has_share_rate_and_time_left() -> None:
    line = progress_line(1_200_000_000, 4_000_000_000, 85e6)
    assert line == "1,200.0 of 4,000.0 MB (30 %), 85.0 MB/s, 33 s left"
    assert progress_line(1, 2, 0).endswith("nothing arrives")
    assert progress_line(2, 2, 0).endswith("the sha256 is computed")
    assert progress_line(0, 0, 0).startswith("0.0 of 0.0 MB (100 %)")
    assert [duration(n) for n in (59, 725, 12_000)] == ["59 s", "12 min 5 s", "3 h 20 min"]
    assert duration(1e9) == "more than 100 h"


def test_line_comes_every_few_seconds_where_no_terminal_is() -> None:
    """Without a terminal, a new line is printed every few seconds."""
    output, now = io.StringIO(), [0.0]
    progress = Progress(100_000_000, 0, output, lambda: now[0])
    for second in range(12):
        now[0] = float(second)
        progress.add(1_000_000)
        progress.tell()
    progress.end()
    assert output.getvalue().splitlines() == [
        "6.0 of 100.0 MB (6 %), 1.2 MB/s, 1 min 18 s left",
        "11.0 of 100.0 MB (11 %), 1.1 MB/s, 1 min 21 s left",
    ]


def test_line_on_a_terminal_is_rewritten_and_removed() -> None:
    """On a terminal, the one line is rewritten each time and removed at the end."""
    output, now = Terminal(), [0.0]
    progress = Progress(10_000_000, 0, output, lambda: now[0])
    for second in range(1, 3):
        now[0] = float(second)
        progress.add(1_000_000)
        progress.tell()
    progress.end()
    text = output.getvalue()
    assert "\n" not in text
    assert text.count("\r") == 4
    assert text.endswith(" \r")


def test_line_on_a_narrow_terminal_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a narrow terminal the line is cut. A longer one would begin a new line each time it is
    rewritten.
    """
    monkeypatch.setenv("COLUMNS", "30")
    output, now = Terminal(), [0.0]
    progress = Progress(4_000_000_000, 0, output, lambda: now[0])
    now[0] = 1.0
    progress.add(85_000_000)
    progress.tell()
    assert output.getvalue() == "\r85.0 of 4,000.0 MB (2 %), 85."
