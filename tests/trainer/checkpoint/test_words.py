"""`./disttrain status` reads what the trainer really prints of its saves."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.status.progress import Progress, read_progress
from tests.trainer.lab import Lab, NoSignals
from trainer.checkpoint import save, words
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.train import train

BEGIN = datetime(2026, 11, 24, 9, 0, tzinfo=UTC)
LIMIT_SECONDS = 60


def printed(lab: Lab, capsys: pytest.CaptureFixture[str], **settings: Any) -> list[str]:
    """Train two steps in this process, and return the lines that the trainer prints."""
    run = lab.config(train__max_steps=2, train__warmup_steps=0, log__interval=1, **settings)
    train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)
    return capsys.readouterr().out.splitlines()


def seen_after(lines: list[str], last: str) -> Progress:
    """Return what `./disttrain status` reads from the lines up to `last`, which come one second
    apart.
    """
    count = lines.index(last) + 1
    times = [(BEGIN + timedelta(seconds=number)).isoformat() for number in range(count)]
    return read_progress("\n".join(map(" ".join, zip(times, lines[:count], strict=True))))


def only(lines: list[str], beginning: str) -> str:
    """Return the only line that begins with these words."""
    (found,) = [line for line in lines if line.startswith(beginning)]
    return found


def test_save_that_training_waits_for_is_seen_from_its_begin_to_its_end(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`./disttrain status` sees a save from its begin on, then that training waits for it, and its
    end.
    """
    write, said, is_waited_for = save.write_file, words.waited_for, threading.Event()

    def note(name: str) -> str:
        is_waited_for.set()
        return said(name)

    def write_once_waited_for(path: Path, pieces: Any) -> dict[str, Any]:
        assert is_waited_for.wait(LIMIT_SECONDS)
        return write(path, pieces)

    monkeypatch.setattr(words, "waited_for", note)
    monkeypatch.setattr(save, "write_file", write_once_waited_for)
    monkeypatch.setattr(save, "_POLL_SECONDS", 0.01)
    lines = printed(lab, capsys, checkpoint__asynchronous=False, checkpoint__interval=0)
    begun = only(lines, words.begun("step-00000002"))
    at = BEGIN + timedelta(seconds=lines.index(begun))
    first = seen_after(lines, begun)
    assert (first.saving_step, first.saving_at, first.saving_holds) == (2, at, False)
    held = seen_after(lines, only(lines, words.waited_for("step-00000002")))
    assert (held.saving_step, held.saving_at, held.saving_holds) == (2, at, True)
    over = seen_after(lines, only(lines, "checkpoint step-00000002 saved in "))
    assert (over.saving_step, over.saving_at, over.saving_holds) == (None, None, False)
    assert over.saved_step == 2


def test_save_that_fails_is_over_and_the_next_try_begins(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a save that failed, `./disttrain status` sees no save until the next try begins."""
    write, failed = save.write_file, list[Path]()

    def fail_once(path: Path, pieces: Any) -> dict[str, Any]:
        if not failed:
            failed.append(path)
            raise OSError(5, "Input/output error")
        return write(path, pieces)

    monkeypatch.setattr(save, "write_file", fail_once)
    monkeypatch.setattr(save, "_PAUSE_SECONDS", 0)
    lines = printed(lab, capsys, checkpoint__interval=0)
    warning = only(lines, "warning: the checkpoint of step 2 could not be written")
    assert seen_after(lines, warning).saving_step is None
    assert lines.count(words.begun("step-00000002")) == 2
    assert seen_after(lines, only(lines, "checkpoint step-00000002 saved in ")).saved_step == 2
