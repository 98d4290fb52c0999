"""The log on the volume never holds up whoever gives it a line."""

from __future__ import annotations

import os
import re
import resource
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainer.launch import run_log
from trainer.launch.rotating_file import RotatingFile
from trainer.launch.run_log import RunLog, log_path, record_of

AT = datetime(2026, 11, 22, 9, 0, 0, 123456, UTC)


def test_a_record_has_time_node_and_rank() -> None:
    assert record_of(AT, 1, 4, b"a \xff b") == b"2026-11-22T09:00:00.123456Z 1 4 a \xff b\n"
    assert record_of(AT, 0, None, b"") == b"2026-11-22T09:00:00.123456Z 0 - \n"
    assert log_path(Path("/data/runs/r"), 12) == Path("/data/runs/r/logs/node-00012.log")


def test_lines_are_on_the_volume_after_close(tmp_path: Path) -> None:
    path = log_path(tmp_path, 0)
    log = RunLog(RotatingFile(path), 0)
    assert [log.put(AT, number, b"line") for number in range(1000)] == [""] * 1000
    assert log.settle(60) == ""
    assert len(path.read_bytes().splitlines()) == 1000
    log.put(AT, None, b"the end")
    log.close(60)
    assert path.read_bytes().endswith(b" 0 - the end\n")


def test_a_volume_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    """A volume that hangs holds up nobody, and one notice reports it. A pipe that nobody reads
    stands in for the file, because opening it waits as on a lost NFS server.
    """
    path = tmp_path / "node-00000.log"
    os.mkfifo(path)
    log = RunLog(RotatingFile(path), 0, queue_bytes=10_000)
    notices = [notice for _ in range(1000) if (notice := log.put(AT, 0, b"x" * 50))]
    assert len(notices) == 1
    assert "cannot be written (it does not answer)" in notices[0]
    assert log.settle(0.01) == notices[0]
    began = time.monotonic()
    log.close(0.2)
    assert time.monotonic() - began < 30  # it gave up; its thread is still blocked
    os.close(os.open(path, os.O_RDONLY))


def test_when_the_volume_answers_again_the_file_says_what_is_missing(tmp_path: Path) -> None:
    """When the volume answers again, the file has the lines that were kept, and a warning with the
    number of those that are missing.
    """
    path = tmp_path / "node-00000.log"
    os.mkfifo(path)
    log = RunLog(RotatingFile(path), 0, queue_bytes=10_000)
    for number in range(1000):
        log.put(AT, 0, str(number).encode())
    reader = os.open(path, os.O_RDONLY)
    assert log.settle(60) == ""
    log.put(AT, 0, b"it goes on")
    log.settle(60)
    text = os.read(reader, 1 << 20).decode()
    log.close(60)
    os.close(reader)
    kept = re.findall(r"Z 0 0 (\d+)\n", text)
    missing = re.search(r"Z 0 - \[node 0\] warning: (\d+) line\(s\) are missing here", text)
    assert missing
    assert kept == [str(number) for number in range(len(kept))]
    assert len(kept) + int(missing[1]) == 1000
    assert text.endswith("it goes on\n")


def test_a_full_volume_is_tried_again_and_loses_no_line(tmp_path: Path) -> None:
    """A full volume is reported and tried again, and no line is lost. A limit on the size of a file
    stands in for it.
    """
    path = tmp_path / "node-00000.log"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    run_log_retry, run_log.RETRY_SECONDS = run_log.RETRY_SECONDS, 0.05
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        log = RunLog(RotatingFile(path), 0)
        for number in range(100):
            assert log.put(AT, 0, f"line {number}".encode()) == ""
        assert "cannot be written (File too large)" in _problem(log)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert log.settle(60) == ""
        log.close(60)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        run_log.RETRY_SECONDS = run_log_retry
    whole = [line for line in path.read_text().splitlines() if re.search(r" 0 0 line \d+$", line)]
    assert [line.rpartition(" ")[2] for line in dict.fromkeys(whole)][-50:] == [
        str(number) for number in range(50, 100)
    ]
    assert {f"{number}" for number in range(100)} <= {line.rpartition(" ")[2] for line in whole}


def _problem(log: RunLog) -> str:
    """Return the notice that the file is too large, or `none` if it does not come."""
    for _ in range(1000):
        if "File too large" in (notice := log.settle(0.01)):
            return notice
        time.sleep(0.05)
    return "none"


def test_a_volume_that_cannot_be_written_for_long_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that cannot be written for a while is reported once, long before its queue is full, as
    somebody may have to give it rights.
    """
    monkeypatch.setattr(run_log, "STUCK_SECONDS", 0.1)
    (tmp_path / "logs").write_text("not a folder")
    log = RunLog(RotatingFile(log_path(tmp_path, 0)), 0)
    notices: list[str] = []
    deadline = time.monotonic() + 60
    while not notices and time.monotonic() < deadline:
        notices += filter(None, [log.put(AT, 0, b"line")])
        time.sleep(0.02)
    assert "cannot be written (Not a directory)" in notices[0]
    assert [log.put(AT, 0, b"line") for _ in range(100)] == [""] * 100
    log.close(10)
