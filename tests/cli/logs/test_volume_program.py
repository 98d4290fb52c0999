"""The program that reads logs in a pod, run as a process on files that the trainer's code has
written.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.logs import volume_program
from cli.logs.line import record_time
from cli.logs.selection import Selection
from cli.logs.volume import arguments_of
from trainer.launch.rotating_file import RotatingFile
from trainer.launch.run_log import log_path, record_of

BEGIN = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return the time that is so many seconds after BEGIN."""
    return BEGIN + timedelta(seconds=seconds)


def write(run: Path, node: int, rank: int | None, seconds: float, text: str) -> None:
    """Append a line to a node's log as the trainer does; the file is renamed after 2000 bytes."""
    file = RotatingFile(log_path(run, node), largest_bytes=2000)
    file.append(record_of(at(seconds), node, rank, text.encode()))
    file.close()


def arguments(run: Path, follow: bool = False, tail: int = -1, **selection: object) -> list[str]:
    """Return the command that runs the program, without anything of the project to import."""
    asked = arguments_of(str(run), Selection(**selection), tail, follow)  # type: ignore[arg-type]
    program = Path(volume_program.__file__).read_text()
    # -I: no module of the project can be imported.
    return [sys.executable, "-I", "-c", program, asked]


def history(run: Path, **asked: object) -> list[str]:
    """Return the texts of the records that the program shows."""
    done = subprocess.run(
        arguments(run, **asked),  # type: ignore[arg-type]
        capture_output=True,
        check=True,
        timeout=60,
    )
    rows = done.stdout.decode(errors="replace").splitlines()
    assert rows[-1] == "H"
    assert rows.count("B") == 1
    return [row.split(" ", 3)[3] for row in rows if row.startswith("R")]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run with two nodes of two ranks, whose logs have 100 lines per rank in
    several files.
    """
    for number in range(100):
        for rank in range(4):
            text = f"rank {rank} line {number}"
            write(tmp_path, rank // 2, rank, 10 * number + rank, text)
    assert len(list((tmp_path / "logs").iterdir())) > 6
    return tmp_path


def test_all_files_of_all_nodes_are_merged_by_time(run: Path) -> None:
    """All files of all nodes become one log in the order of time, without a gap."""
    found = history(run)
    kept = [int(text.split()[3]) for text in found]
    assert kept == sorted(kept)
    newest = kept[-1]
    assert newest == 99
    of_first = kept.count(99)
    assert of_first == 4
    for rank in range(4):
        mine = [int(text.split()[3]) for text in found if text.startswith(f"rank {rank} ")]
        assert mine == list(range(mine[0], 100))  # the oldest files were removed; no gap


def test_cut_end_of_a_file_stays_apart(tmp_path: Path) -> None:
    """A line that was cut off at the end of a file stays apart from the next file's first line. A
    full volume cuts a line off, and the file may be renamed before the line is ended.
    """
    write(tmp_path, 0, 0, 1, "whole")
    path = log_path(tmp_path, 0)
    cut = record_of(at(2), 0, 0, b"written in part and then as a whole")[:50]
    path.write_bytes(path.read_bytes() + cut)
    path.rename(path.with_name(f"{path.name}.20261122T090005.000000Z-abcd"))
    write(tmp_path, 0, 0, 2, "written in part and then as a whole")
    assert history(tmp_path) == [
        "whole",
        "written in part an",
        "written in part and then as a whole",
    ]


def test_ranks_time_words_and_count_are_asked_for(run: Path) -> None:
    """The program shows only the ranks, the time, the words and the number of lines that are asked
    for.
    """
    assert history(run, ranks=frozenset({1, 2}), since=at(980).timestamp()) == [
        f"rank {rank} line {number}" for number in (98, 99) for rank in (1, 2)
    ]
    assert history(run, grep=re.compile(r"rank [03] line 9[89]$")) == [
        f"rank {rank} line {number}" for number in (98, 99) for rank in (0, 3)
    ]
    assert history(run, tail=3) == [f"rank {rank} line 99" for rank in (1, 2, 3)]


def test_words_beyond_ascii_are_found(tmp_path: Path) -> None:
    write(tmp_path, 0, 0, 1, "Größe 5")
    assert history(tmp_path, grep=re.compile(r"^Gr\w\we \d")) == ["Größe 5"]


def test_a_run_without_logs_has_an_empty_history(tmp_path: Path) -> None:
    assert history(tmp_path) == []


def test_a_torn_line_stays_with_its_neighbours(tmp_path: Path) -> None:
    """A line that is no record keeps its place between the records around it."""
    write(tmp_path, 0, 0, 1, "before")
    with log_path(tmp_path, 0).open("ab") as file:
        file.write(b"2026-11-2\n\xff\n")
    write(tmp_path, 0, 0, 2, "after")
    odd = "\N{REPLACEMENT CHARACTER}"
    assert history(tmp_path) == ["before", "2026-11-2", odd, "after"]


def test_the_lines_of_a_node_keep_their_order_when_its_clock_is_set_back(tmp_path: Path) -> None:
    """The lines of one node keep the order in which they were written, although its clock was set
    back.
    """
    for number, seconds in enumerate((10, 20, 5, 30)):
        write(tmp_path, 0, 0, seconds, f"a{number}")
    write(tmp_path, 1, 1, 15, "b")
    assert history(tmp_path) == ["a0", "b", "a1", "a2", "a3"]


def test_the_last_seconds_come_first_whatever_is_asked_for(tmp_path: Path) -> None:
    """The lines of the last seconds come first, even if none of them is asked for. With them `logs`
    finds out which lines of the API server the volume has.
    """
    for seconds in (0, 5, 14, 15):
        write(tmp_path, 0, 0, seconds, f"at {seconds}")
    done = subprocess.run(
        arguments(tmp_path, grep=re.compile("nothing")), capture_output=True, check=True, timeout=60
    )
    recent = [row.split(" ", 3)[3] for row in done.stdout.decode().splitlines() if row[0] == "S"]
    assert recent == ["at 5", "at 14", "at 15"]


def test_new_lines_are_followed_over_rotation_and_new_nodes(tmp_path: Path) -> None:
    """New lines are shown once and in order while files are renamed, nodes are added and a clock is
    set back.
    """
    write(tmp_path, 0, 0, 0, "old")
    command = arguments(tmp_path, follow=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        rows = shown(program)
        assert next(rows) == "old"
        for number in range(60):
            write(tmp_path, 0, 0, number, f"new {number} {'x' * 60}")
            if number % 10 == 9:  # ten lines have fewer bytes than the kept files
                expected = [f"new {n} {'x' * 60}" for n in range(number - 9, number + 1)]
                assert [next(rows) for _ in expected] == expected
        write(tmp_path, 3, 7, 1, "a node that comes later")
        assert next(rows) == "a node that comes later"
        clock_set_back = [record_of(at(900 - n), 0, 0, b"back %d" % n) for n in range(3)]
        RotatingFile(log_path(tmp_path, 0)).append(b"".join(clock_set_back))
        assert [next(rows) for _ in range(3)] == ["back 0", "back 1", "back 2"]
        program.kill()


def shown(program: subprocess.Popen[str]) -> Iterator[str]:
    """Yield the texts of the records that a running program shows."""
    assert program.stdout
    for row in program.stdout:
        if row.startswith("R"):
            yield row.rstrip("\n").split(" ", 3)[3]


def test_the_argument_has_what_is_asked_for() -> None:
    selection = Selection(frozenset({2, 0}), at(0).timestamp(), re.compile("x"))
    assert json.loads(arguments_of("/data/runs/r", selection, 5, follow=True)) == {
        "folder": "/data/runs/r/logs",
        "since": "2026-11-22T09:00:00.000000Z",
        "ranks": [0, 2],
        "grep": "x",
        "tail": 5,
        "follow": True,
    }
    assert record_time(at(0.25).timestamp()) == "2026-11-22T09:00:00.250000Z"
