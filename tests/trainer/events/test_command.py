"""`python -m trainer goodput`, which prints the account of a run without Kubernetes."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from tests.trainer.events.stories import Story
from tests.trainer.lab import Lab
from trainer.__main__ import main
from trainer.config import RunConfig
from trainer.events.event import Name, event_file
from trainer.events.show import MOST_STARTS
from trainer.launch.exit_codes import ExitCode


def put(lab: Lab, told: Story, run: RunConfig | None = None) -> list[str]:
    """Write the events of a run, and return the command with the options that name the run."""
    run = run or lab.config()
    file = event_file(run.run_dir, 0)
    file.parent.mkdir(parents=True)
    file.write_bytes(told.content)
    return ["goodput", "--config", str(lab.config_file(run))]


def test_command_prints_the_account_of_a_run_folder(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints the account as JSON with the cost, or as text."""
    told = Story()
    told.starts(1000, 100, 100, 100)
    told.trains(10, 200)
    words = put(lab, told)
    capsys.readouterr()
    assert main([*words, "--json", "--price-per-gpu-hour=2", "--train.max_steps=50"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seconds"]["productive"] == 2
    assert found["cost"]["price_per_gpu_hour"] == 2
    assert main(words) == 0
    assert "step 11, up to its last sign of life" in capsys.readouterr().out


def test_run_without_events_is_an_error_that_says_what_to_do(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    run = lab.config()
    assert main(["goodput", "--config", str(lab.config_file(run))]) == ExitCode.FATAL
    assert "node-00000.jsonl cannot be read (No such file" in capsys.readouterr().err


def test_many_restarts_do_not_fill_the_screen(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the last restarts are listed, with the number of the earlier ones."""
    told = Story()
    told.starts(1000, 100, 100, 100)
    for _ in range(MOST_STARTS + 5):
        told.rank_dies(10, 10)
        told.round(10, 10, 10, 10)
    assert main(put(lab, told)) == 0
    text = capsys.readouterr().out
    assert text.count("\nrestart ") == MOST_STARTS
    assert "5 earlier restarts: see --json" in text
    assert f"restart {MOST_STARTS + 5} after" in text


def test_run_that_has_not_begun_says_so(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(put(lab, Story(content=b'\n{"event":"torn'))) == 0
    assert "no time is measured yet" in capsys.readouterr().out


def test_memory_does_not_grow_with_the_reports(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """The account of a long run takes as much memory as that of a short one. It is made in the
    training pod, whose memory is the run's, and a run of months has millions of reports.
    """

    def peak_bytes(run_name: str, reports: int) -> int:
        told = Story()
        told.starts(1000, 100, 100, 100)
        for number in range(reports):
            told.trains(10, 200 + number % 7)
        told.note(Name.SAVED, step=told.step)
        run = lab.config(run_name=run_name)
        words = put(lab, told, run)
        tracemalloc.start()
        try:
            assert main(words) == 0
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak_bytes("warm", 10)
    assert peak_bytes("long", 4000) < 2 * peak_bytes("short", 400)
    assert f"step {1 + 4000 * 10}, up to" in capsys.readouterr().out
