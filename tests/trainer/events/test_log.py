"""Events are appended as whole lines, whatever happens to the process, and never hold up
training.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from trainer.events import log as log_module
from trainer.events.clock import process_age_seconds, stamped
from trainer.events.event import Event, Events, Name, parse_events, to_line
from trainer.events.log import EventLog
from trainer.events.writers import shortened

CHECKOUT = Path(__file__).resolve().parents[3]
WRITER = """
import sys
import time
from pathlib import Path
from trainer.events.event import Name
from trainer.events.log import EventLog
log = EventLog(Path(sys.argv[1]), print)
step = 0
while True:
    step += 1
    log.write(Name.SAVED, step=step, filler="x" * (step % 700))
    while log._events.qsize() > 50:
        time.sleep(0.001)
"""


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "events" / "node-00000.jsonl"
    log = EventLog(path, print)
    log.write(Name.POD_STARTED, age_seconds=0.25, gpus=8)
    log.write(Name.SAVED, step=3)
    log.close()
    log.write(Name.SAVED, step=4)  # too late
    events, damaged = parse_events(path.read_bytes())
    assert [(event.name, event.values) for event in events] == [
        (Name.POD_STARTED, {"age_seconds": 0.25, "gpus": 8}),
        (Name.SAVED, {"step": 3}),
    ]
    assert damaged == 0


def test_long_reason_keeps_its_begin_and_its_end() -> None:
    """The last words of a reason mostly say what is wrong, or what to do."""
    assert shortened("no room\n  on the disk") == "no room on the disk"
    short = shortened(f"3 starts in a row failed: {'x' * 300}\nValueError: batch 7 is empty")
    assert short.startswith("3 starts in a row failed: xxx")
    assert " ... " in short
    assert short.endswith("xxx ValueError: batch 7 is empty")
    assert len(short) == 200


def test_kill_9_spoils_no_line_but_the_last(tmp_path: Path) -> None:
    """Of two writers that are killed while they write one file, each spoils at most its
    last line.
    """
    path = tmp_path / "events.jsonl"
    kills = 10
    for _ in range(kills // 2):
        command = [sys.executable, "-c", WRITER, str(path)]
        writers = [subprocess.Popen(command, cwd=CHECKOUT) for _ in range(2)]
        before = path.stat().st_size if path.exists() else 0
        deadline = time.monotonic() + 60
        while not path.exists() or path.stat().st_size < before + 200_000:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait(60)
    content = path.read_bytes()
    events, damaged = parse_events(content)
    assert damaged <= kills
    assert len(events) + damaged == sum(1 for line in content.split(b"\n") if line)
    assert len(events) > 1000


def test_volume_that_fails_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    """A volume on which events cannot be written gives one warning, and training goes on."""
    (tmp_path / "events").write_text("a file where the folder should be")
    lines = list[str]()
    log = EventLog(tmp_path / "events" / "node-00000.jsonl", lines.append)
    for step in range(5):
        log.write(Name.SAVED, step=step)
    log.close()
    assert len(lines) == 1
    assert "training goes on" in lines[0]


def test_full_volume_costs_the_events_it_has_no_room_for(tmp_path: Path) -> None:
    """A full volume costs only the events for which it has no room, and gives one warning. A limit
    on the size of this process's files stands in for it: a part of a line is written.
    """
    path, lines = tmp_path / "events.jsonl", list[str]()
    log = EventLog(path, lines.append)
    log.write(Name.SAVED, step=1)
    log.close()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, before[1]))
        log = EventLog(path, lines.append)
        for step in range(2, 5):
            log.write(Name.SAVED, step=step)
        log.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    log = EventLog(path, lines.append)
    log.write(Name.SAVED, step=5)
    log.close()
    events, damaged = parse_events(path.read_bytes())
    assert [event.step() for event in events] == [1, 5]
    assert damaged == 1
    assert len(lines) == 1


def test_file_that_became_stale_is_opened_again(tmp_path: Path) -> None:
    """A file that has become stale is opened again, and no event is lost. An NFS server that came
    back may not know the files that were open.

    A descriptor that can only read stands in for the stale one, as each write to it fails.
    """
    path, lines = tmp_path / "events.jsonl", list[str]()
    log = EventLog(path, lines.append)
    log.write(Name.SAVED, step=0)
    deadline = time.monotonic() + 60
    while not path.exists() or not path.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    opened = log._descriptor  # pyright: ignore[reportPrivateUsage]
    assert opened is not None
    only_reads = os.open(path, os.O_RDONLY)
    os.dup2(only_reads, opened)
    os.close(only_reads)
    for step in (1, 2, 3):
        log.write(Name.SAVED, step=step)
    log.close()
    events, _ = parse_events(path.read_bytes())
    assert [event.step() for event in events] == [0, 1, 2, 3]
    assert lines == []


@pytest.mark.parametrize("events", [1, 20])
def test_volume_that_stands_still_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    """A write that never ends holds up neither whoever notes an event, nor the end of the process.
    If there are more events than may wait, a warning says that the volume is too slow.
    """
    stands_still, is_over = threading.Event(), threading.Event()

    def write(descriptor: int, line: bytes) -> int:
        stands_still.set()
        is_over.wait(60)
        is_over.set()
        return len(line)

    monkeypatch.setattr(log_module, "_MOST_WAITING", 5)
    monkeypatch.setattr(log_module.os, "write", write)
    lines = list[str]()
    log = EventLog(tmp_path / "events.jsonl", lines.append)
    for step in range(events):
        log.write(Name.SAVED, step=step)
        assert stands_still.wait(60)
    log.close(limit_seconds=0.01)
    assert not is_over.is_set()  # it would be, if anybody had waited for the write
    is_over.set()
    assert ["too slow" in line for line in lines] == [True] * (events > 5)


def test_process_that_does_nothing_gives_signs_of_life(tmp_path: Path) -> None:
    """A process without any event to note writes signs of life."""
    path = tmp_path / "events.jsonl"
    log = EventLog(path, print, heartbeat_seconds=0.01)
    log.write(Name.POD_STARTED, age_seconds=0, gpus=1)
    deadline = time.monotonic() + 60
    while path.read_bytes().count(b'"alive"') < 3 if path.exists() else True:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    log.close()


def test_log_without_a_path_writes_nothing_and_starts_nothing() -> None:
    before = set(threading.enumerate())  # of which one may be about to end
    log = EventLog(None, print)
    log.write(Name.SAVED, step=1)
    assert set(threading.enumerate()) <= before
    log.close()


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[1]",
        b'{"event":"saved"}',
        to_line(Event(Name.SAVED, 1.0, 1.0, "a", {})),  # without its step
        to_line(Event(Name.SAVED, 1.0, 1.0, "a", {"step": -1})),
        to_line(Event(Name.SAVED, 1.0, 1.0, "a", {"step": "many"})),
        b'{"event":"alive","time":NaN,"monotonic":1,"boot":"a"}',
    ],
)
def test_line_that_cannot_be_used_is_counted_and_left_out(line: bytes) -> None:
    good = to_line(Event(Name.ALIVE, 1.0, 1.0, "a"))
    events, damaged = parse_events(b"\n".join([good, line, good]))
    assert (len(events), damaged) == (2, 1)


def test_age_of_a_process_is_from_its_start() -> None:
    """The age of a process counts from its start, and not from the import of the module."""
    program = "import time; time.sleep(0.2); from trainer.events.clock import process_age_seconds;"
    program += "print(process_age_seconds())"
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert 0.15 <= float(done.stdout) <= time.monotonic() - begin + 0.05


def test_stamps_of_two_processes_share_one_clock() -> None:
    """The monotonic times of two processes of one machine can be compared."""
    program = "from trainer.events.clock import stamped; e = stamped('x', {});"
    program += "print(e.boot, e.monotonic_seconds)"
    before = stamped("x", {})
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    boot, monotonic = done.stdout.split()
    assert boot == before.boot
    assert before.monotonic_seconds < float(monotonic) < stamped("x", {}).monotonic_seconds
    assert process_age_seconds() > 0


def test_lines_that_come_later_are_left_out(tmp_path: Path) -> None:
    """Each reading of one `Events` gives the same events, although the run appends further ones.
    The account reads the file twice, and has to see the same.
    """
    path = tmp_path / "node-00000.jsonl"
    event = Event(Name.ALIVE, 1.0, 1.0, "boot")
    path.write_bytes(to_line(event) + to_line(event)[:9])
    events = Events.of_file(path)
    assert list(events) == [event]
    with path.open("ab") as file:
        file.write(to_line(event)[9:] + to_line(event))
    assert list(events) == [event]
    assert events.damaged_lines == 1
