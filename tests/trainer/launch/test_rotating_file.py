"""The file of a run's log: its size, two writers at once, a clock that was wrong, and lines cut
off.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from datetime import datetime, tzinfo
from pathlib import Path

import pytest

from trainer.launch import rotating_file
from trainer.launch.rotating_file import RotatingFile

CHECKOUT = Path(__file__).resolve().parents[3]
WRITER = """
import sys
from pathlib import Path
from trainer.launch.rotating_file import RotatingFile
name, path, lines = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
file = RotatingFile(path, largest_bytes=20_000, old_files=10_000)
print("ready", flush=True)
sys.stdin.readline()
for number in range(lines):
    line = f"{name} {number} {'x' * (number % 50)}\\n".encode()
    assert file.append(line) == len(line)
"""


class ClockAhead(datetime):
    """A stand-in for the clock that is a century ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> ClockAhead:
        now = super().now(tz)
        return now.replace(year=now.year + 100, day=1)


def test_old_files_give_way_and_the_newest_lines_stay(tmp_path: Path) -> None:
    """The log keeps to its size and number of files by dropping the oldest files."""
    path = tmp_path / "logs" / "node-00000.log"
    file = RotatingFile(path, largest_bytes=100, old_files=2)
    for number in range(100):
        file.append(f"line {number:03}\n".encode())
    files = [*sorted(path.parent.glob("node-00000.log.*")), path]
    assert len(files) == 3
    assert all(each.stat().st_size <= 100 for each in files)
    lines = "".join(each.read_text() for each in files).splitlines()
    assert lines == [f"line {number:03}" for number in range(100 - len(lines), 100)]
    assert len(lines) > 22  # two full files, and what is in the newest


def test_newest_lines_stay_after_a_clock_was_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest lines stay after the clock was ahead for a while, although the names of the files
    of that while say that they are newer.
    """
    path = tmp_path / "node-00000.log"
    file = RotatingFile(path, largest_bytes=100, old_files=2)
    with monkeypatch.context() as patch:
        patch.setattr(rotating_file, "datetime", ClockAhead)
        for number in range(50):
            file.append(f"line {number:03}\n".encode())
    assert any(".21" in each.name for each in tmp_path.iterdir())  # it was in that century
    for number in range(50, 100):
        file.append(f"line {number:03}\n".encode())
    files = [*sorted(tmp_path.glob("node-00000.log.*")), path]
    lines = "".join(each.read_text() for each in files).splitlines()
    assert lines == [f"line {number:03}" for number in range(100 - len(lines), 100)]
    assert len(lines) > 22


def test_a_later_start_appends_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node-00000.log"
    for start in range(3):
        file = RotatingFile(path)
        file.append(f"start {start}\n".encode())
        file.close()
    assert path.read_text() == "start 0\nstart 1\nstart 2\n"


def test_a_file_that_another_writer_has_renamed_is_left(tmp_path: Path) -> None:
    """A writer leaves a file that another writer has renamed. Otherwise its lines would go into an
    old file, and be removed with it.
    """
    path = tmp_path / "node-00000.log"
    one, other = (RotatingFile(path, largest_bytes=30) for _ in range(2))
    one.append(b"one\n")
    other.append(b"other\n")
    one.append(b"one needs a file of its own\n")
    other.append(b"x\n")
    assert [each.read_text() for each in tmp_path.glob("*.log.*")] == ["one\nother\n"]
    assert path.read_text() == "one needs a file of its own\nx\n"


def test_two_processes_write_one_file_and_lose_nothing(tmp_path: Path) -> None:
    """A pod that is still ending and its successor lose no line, although each renames the file
    while the other writes.
    """
    path, lines = tmp_path / "node-00000.log", 4000
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, name, str(path), str(lines)],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("old", "new")
    ]
    for writer in writers:
        assert writer.stdout
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.communicate("go\n", timeout=60)
        assert writer.returncode == 0
    files = [*sorted(tmp_path.glob("node-00000.log.*")), path]
    assert len(files) > 5
    lines_found = [line for each in files for line in each.read_text().splitlines()]
    # One that opens the file while the other one writes may have ended its line once more.
    found = [line.split() for line in lines_found if line]
    assert len(found) == 2 * lines
    for name in ("old", "new"):
        numbers = sorted(int(words[1]) for words in found if words[0] == name)
        assert numbers == list(range(lines))
        assert all(len(w) == 2 or w[2] == "x" * (int(w[1]) % 50) for w in found if w[0] == name)


def test_a_line_that_was_cut_off_is_ended_before_the_next(tmp_path: Path) -> None:
    """A line that the kernel has cut off is ended before the next line is written. A limit on the
    size of a file stands in for a full disk: the kernel writes what still fits, and then no more.
    """
    path = tmp_path / "node-00000.log"
    file, limits = RotatingFile(path), resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (25, limits[1]))
        assert file.append(b"to be or not\n") == 13
        assert file.append(b"that is the question\n") == 12
        with pytest.raises(OSError, match="File too large"):
            file.append(b"that is the question\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    file.append(b"that is the question\n")
    assert path.read_text() == "to be or not\nthat is the \nthat is the question\n"


def test_a_line_cut_by_a_lost_machine_is_ended(tmp_path: Path) -> None:
    """The next pod ends a piece of a line that a machine without power has left. Otherwise the
    first line of that pod would become a part of the piece.
    """
    path = tmp_path / "node-00000.log"
    path.write_bytes(b"to be or not\nthat is the que")
    for line in (b"whether\n", b"'tis nobler\n"):
        file = RotatingFile(path)
        file.append(line)
        file.close()
    assert path.read_text() == "to be or not\nthat is the que\nwhether\n'tis nobler\n"
