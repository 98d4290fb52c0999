"""`python -m trainer sample`, which continues a text with a trained model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.lab import CHECKOUT, WORDS, Lab
from trainer.__main__ import main
from trainer.config import RunConfig


@pytest.fixture(scope="module")
def runs(module_lab: Lab) -> tuple[RunConfig, RunConfig]:
    """Return the same run by one process and by two."""
    settings = {"train__max_steps": 150, "train__global_batch_size": 32}
    one, two = (module_lab.config(run_name=name, **settings) for name in ("one", "two"))
    module_lab.train_side_by_side((one, 1), (two, 2))
    return one, two


@pytest.fixture(scope="module")
def run(runs: tuple[RunConfig, RunConfig]) -> RunConfig:
    return runs[1]


Sample = Callable[..., str]


@pytest.fixture
def sample(capsys: pytest.CaptureFixture[str]) -> Sample:
    """Return a function that gives what `python -m trainer sample` prints. It runs in this process,
    because importing torch takes seconds.
    """

    def print_sample(run: RunConfig, *options: str) -> str:
        assert main(["sample", "--run-dir", str(run.run_dir), *options]) == 0
        return capsys.readouterr().out

    return print_sample


def test_a_sample_continues_the_prompt_with_words_of_the_text(run: RunConfig) -> None:
    options = ["--prompt=to be", "--max-new-tokens=200", "--temperature=0.3"]
    command = [sys.executable, "-m", "trainer", "sample", "--run-dir", str(run.run_dir), *options]
    result = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("to be")
    words = result.stdout.split()[:-1]  # the last one may be cut
    assert sum(word in WORDS for word in words) > 0.5 * len(words)
    assert len(result.stdout) == 5 + 200 + 1


def test_checkpoints_of_one_and_of_two_ranks_are_read_alike(
    runs: tuple[RunConfig, RunConfig], sample: Sample
) -> None:
    for run in runs:
        text = sample(run, "--prompt=the questi", "--temperature=0", "--max-new-tokens=2")
        assert text == "the question\n"


def test_the_cache_does_not_change_the_sample(run: RunConfig, sample: Sample) -> None:
    options = ("--max-new-tokens=60", "--temperature=0.9", "--top-k=8", "--top-p=0.95")
    assert sample(run, *options) == sample(run, *options, "--no-cache")


def test_the_seed_decides_the_sample(run: RunConfig, sample: Sample) -> None:
    one, same, other = (sample(run, f"--seed={seed}") for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--prompt=€", "--prompt: '€' cannot be used: the text of the training"),
        ("--prompt=", "--prompt: '' cannot be used: the model goes on from a text"),
        (
            "--top-k=0",
            "--top-k: 0 cannot be used: no token would be left. Set a whole number of at least 1.",
        ),
        ("--temperature=-1", "--temperature: -1.0 cannot be used: logits are divided by it"),
        ("--temperature=nan", "--temperature: nan cannot be used"),
        ("--top-p=0", "--top-p: 0.0 cannot be used: it is a probability. Set a number above 0"),
        ("--top-p=1.5", "--top-p: 1.5 cannot be used"),
        (
            "--seed=-1",
            "--seed: -1 cannot be used: the generator of random numbers takes no such seed. Set",
        ),
        ("--max-new-tokens=0", "--max-new-tokens: 0 cannot be used: there would be no text. Set a"),
    ],
)
def test_a_bad_option_is_named(
    run: RunConfig, option: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sample", "--run-dir", str(run.run_dir), option]) == 78
    assert words in capsys.readouterr().err


def test_a_directory_without_a_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sample", "--run-dir", str(tmp_path)]) == 78
    assert f"--run-dir: {tmp_path} cannot be used: it has no checkpoint" in capsys.readouterr().err
    assert main(["sample", "--run-dir", str(tmp_path / "mistyped")]) == 78
    assert "mistyped cannot be used: there is no such folder. Give" in capsys.readouterr().err
