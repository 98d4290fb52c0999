"""The program that reads a run's events in a pod, and what the account makes of its answer."""

import subprocess
import sys
import tracemalloc
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.goodput import pod_program, run_events
from infra.kube.api_server.exec_stream import SILENCE_SECONDS, Ended
from trainer.events.account import account_of_file
from trainer.events.event import Event, Events, Name, to_line

names = st.sampled_from([Name.ALIVE, Name.ALIVE, Name.FAILING, Name.ENDED, Name.GATHERING])


def content_of(given_names: list[Name]) -> bytes:
    """Return an events file with an event of each name, a second apart."""
    events = [Event(name, 100.0 + at, 50.0 + at, "a") for at, name in enumerate(given_names)]
    return b"".join(to_line(event) for event in events)


@given(st.lists(names, max_size=20))
def test_account_is_the_same_without_needless_signs_of_life(given_names: list[Name]) -> None:
    """The program leaves out signs of life that change nothing, and the account of the run stays
    the same.
    """
    content = content_of([Name.GATHERING, *given_names])
    arrived = run_events.unpacked(pod_program.packed(content.splitlines(keepends=True)))
    assert account_of_file(arrived) == account_of_file(Events.of(content))
    signs_of_life = [event for event in arrived if event.name == Name.ALIVE]
    assert len(signs_of_life) <= len(given_names) // 2 + 1
    assert signs_of_life == [] or Name.ALIVE in given_names


def run_program(file: Path) -> subprocess.CompletedProcess[str]:
    """Run the program as in the pod: by its text, without this project and its packages."""
    command = [sys.executable, "-I", "-S", "-c", Path(pod_program.__file__).read_text(), str(file)]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


def test_program_needs_the_standard_library_alone(tmp_path: Path) -> None:
    """The program works with Python's standard library alone, and passes a damaged last line on to
    the account.
    """
    content = content_of([Name.GATHERING, Name.ALIVE, Name.ALIVE, Name.ENDED])
    file = tmp_path / "node-00000.jsonl"
    file.write_bytes(content + b'\n{"event":"torn')
    done = run_program(file)
    assert done.returncode == 0, done.stderr
    events = run_events.unpacked(done.stdout)
    assert [event.name for event in events] == [Name.GATHERING, Name.ALIVE, Name.ENDED]
    assert events.damaged_lines == 1


def test_file_that_is_not_there_has_a_status_of_its_own(tmp_path: Path) -> None:
    assert run_program(tmp_path / "nothing").returncode == pod_program.NO_FILE


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """The program needs little memory for a large file. A long run's file has gigabytes, and a
    small pod on a busy node has no memory for copies of it.
    """
    values = {"steps": 1, "data_seconds": 0.0, "save_seconds": 0.0, "longest_seconds": 1.0}
    events = [Event(Name.REPORT, 100.0, 50.0, "a", {"step": 7, **values})] * 20_000
    file = tmp_path / "node-00000.jsonl"
    file.write_bytes(b"".join(map(to_line, events)))
    tracemalloc.start()
    try:
        with file.open("rb") as lines:
            text = pod_program.packed(lines)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < file.stat().st_size / 4
    assert len(list(run_events.unpacked(text))) == len(events)


def test_memory_of_the_account_does_not_grow_with_the_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The events of a long run are unpacked one by one on the user's machine, too, which may read
    those of many runs for the dashboard.
    """
    values = {"step": 7, "data_seconds": 0.0, "save_seconds": 0.0, "longest_seconds": 1.0}
    event = Event(Name.REPORT, 100.0, 50.0, "a", {"steps": 1, **values})
    line, times = to_line(event), 50_000
    answer = Ended(0, pod_program.packed(line for _ in range(times)), "")
    monkeypatch.setattr(run_events, "execute", lambda *given: answer)  # pyright: ignore
    tracemalloc.start()
    try:
        found = sum(1 for _ in run_events.read_events(None, "", "", "/data/runs/dev"))  # pyright: ignore
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == times
    assert peak < times * len(line) / 4


def test_long_reading_gives_signs_of_life(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that needs long writes signs of life to standard error. The command takes a
    connection that brings no byte for a minute for dead.
    """
    seconds = count(step=0.1)
    monkeypatch.setattr(pod_program.time, "monotonic", lambda: next(seconds))
    text = pod_program.packed([to_line(Event(Name.GATHERING, 100.0, 50.0, "a"))] * 10_000)
    assert len(capsys.readouterr().err) > 10_000 * 0.1 / SILENCE_SECONDS
    assert len(list(run_events.unpacked(text))) == 10_000


@pytest.mark.parametrize("cut", [1, 10, 30, 10_000])
def test_answer_that_is_not_whole_is_refused(cut: int) -> None:
    """An answer that lacks its end is refused."""
    text = pod_program.packed([content_of([Name.GATHERING, Name.ENDED])])
    with pytest.raises(ValueError, match=r".+"):
        run_events.unpacked(text[:-cut])
