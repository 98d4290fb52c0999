from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.lab import CHECKOUT, WORDS, Lab
from trainer.config import RunConfig


@pytest.fixture(scope="module")
def run(module_lab: Lab) -> RunConfig:
    config = module_lab.config(train__max_steps=150, train__global_batch_size=32)
    module_lab.train(config, 2)
    return config


def sample(run_dir: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer", "sample", "--run-dir", str(run_dir), *options]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60)


def test_a_sample_continues_the_prompt_with_words_of_the_text(run: RunConfig) -> None:
    result = sample(run.run_dir, "--prompt=to be", "--max-new-tokens=200", "--temperature=0.3")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("to be")
    words = result.stdout.split()[:-1]  # the last one may be cut
    assert sum(word in WORDS for word in words) > 0.5 * len(words)
    assert len(result.stdout) == 5 + 200 + 1


def test_the_seed_decides_the_sample(run: RunConfig) -> None:
    one, same, other = (sample(run.run_dir, f"--seed={seed}").stdout for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--prompt=€", "--prompt: '€': not in the vocabulary"),
        ("--prompt=", "--prompt: it must hold at least one token"),
        ("--top-k=0", "--top-k: 0 is not allowed; allowed: at least 1"),
        ("--temperature=-1", "--temperature: -1.0 is not allowed"),
    ],
)
def test_a_bad_option_is_named(run: RunConfig, option: str, words: str) -> None:
    result = sample(run.run_dir, option)
    assert result.returncode == 78
    assert words in result.stderr


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    result = sample(tmp_path)
    assert result.returncode == 78
    assert f"--run-dir {tmp_path}: no checkpoint" in result.stderr
