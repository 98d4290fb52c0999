"""A run whose data set has its own `tokenizer.json` is complete without its data set."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from cli.fetch import pod_program
from cli.push.local_run import read_run
from tests.trainer.lab import WORDS, Lab, NoSignals, last_step, text_of_words
from trainer.__main__ import main
from trainer.config import RunConfig
from trainer.data.prepare import prepare
from trainer.launch.exit_codes import FatalError
from trainer.mirror.push import Pusher, mirror_folder
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.run_folder import TOKENIZER_FILE
from trainer.train import train

END = "<|endoftext|>"


def config_of(lab: Lab) -> RunConfig:
    """Return a run of five steps with a data set of words and a tokenizer of its own."""
    source = lab.root / "given.json"
    if not source.exists():
        tokenizer = Tokenizer(models.WordLevel(dict(zip([END, *WORDS], range(99), strict=False))))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.add_special_tokens([END])
        tokenizer.save(str(source))
        (lab.root / "words").write_text(text_of_words(2000))
    return lab.config(
        dataset={"name": "own", "file": str(lab.root / "words"), "tokenizer": str(source)},
        train__max_steps=5,
        checkpoint__mirror=f"file://{lab.root}/mirror",
    )


def train_here(run: RunConfig) -> None:
    train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)


@pytest.fixture
def run(lab: Lab) -> Iterator[RunConfig]:
    """Yield a finished run, whose data set is away until the test is over."""
    run = config_of(lab)
    train_here(run)
    away = run.dataset_dir.rename(lab.root / "away")
    yield run
    away.rename(run.dataset_dir)


def copied(run: RunConfig, how: str, to: Path) -> Path:
    """Copy the run as `fetch`, `push` or `restore` does, and return its folder."""
    folder = to / "runs" / run.run_name
    if how == "restore":
        pusher = Pusher(run.checkpoint, run.run_dir, mirror_folder(run), print)
        while pusher.push_next():
            pass
        given = [
            "--preset=shakespeare-char-cpu",
            f"--data_root={to}",
            f"--run_name={run.run_name}",
            f"--checkpoint.mirror={run.checkpoint.mirror}",
        ]
        assert main(["restore", *given]) == 0
        return folder
    names = [file.name for file in read_run(run.run_dir)]
    if how == "fetch":
        beside = [str(file["name"]) for file in pod_program.files(run.run_dir)]
        names = [*(name for name in names if name.startswith("checkpoints/")), *beside]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run.run_dir / name, folder / name)
    return folder


@pytest.mark.parametrize("how", ["fetch", "push", "restore"])
def test_copied_run_needs_no_data_set(
    run: RunConfig, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was copied elsewhere can be exported and sampled without its data set, in which
    `state.json` names the tokenizer's file.
    """
    folder = copied(run, how, tmp_path / "elsewhere")
    assert main(["export", "--run-dir", str(folder), "--output", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == 11
    capsys.readouterr()
    assert main(["sample", "--run-dir", str(folder), "--prompt=to be", "--max-new-tokens=3"]) == 0
    assert len(capsys.readouterr().out.split()) == 5


def test_copy_follows_the_data_set(lab: Lab) -> None:
    """A damaged copy of the tokenizer is replaced at the next start, and a right one is
    left alone.
    """
    run = config_of(lab)
    train_here(run)
    copy, given = run.run_dir / TOKENIZER_FILE, (run.dataset_dir / TOKENIZER_FILE).read_bytes()
    assert copy.read_bytes() == given
    before = copy.stat().st_ino
    train_here(run)
    assert copy.stat().st_ino == before
    copy.write_bytes(given[:-1])
    train_here(run)
    assert copy.read_bytes() == given


def test_run_without_copy_reads_the_data_set(lab: Lab, tmp_path: Path) -> None:
    """A run of an earlier version, which has no copy of the tokenizer, is exported with that of the
    data set.
    """
    run = config_of(lab)
    train_here(run)
    (run.run_dir / TOKENIZER_FILE).unlink()
    given = ["--run-dir", str(run.run_dir), "--output", str(tmp_path / "out")]
    assert main(["export", *given]) == 0


def test_moved_tokenizer_continues_the_run(lab: Lab) -> None:
    """A run continues if its tokenizer.json has another path. Its content is checked by the data
    set, whose tokens it made.
    """
    run, moved = config_of(lab), lab.root / "moved.json"
    train_here(run)
    shutil.move(run.dataset.tokenizer, moved)
    more = replace(run, train=replace(run.train, max_steps=7))
    with pytest.raises(FatalError, match=r"given.json cannot be read: .* set its new path"):
        prepare(more)
    more = replace(more, dataset=replace(run.dataset, tokenizer=str(moved)))
    prepare(more)
    train_here(more)
    assert last_step(more) == 7


def test_lost_tokenizer_says_what_helps(lab: Lab) -> None:
    """A data set without its tokenizer.json says what to do. To prepare it again is not enough,
    because its other files show that it is prepared.
    """
    run = config_of(lab)
    (run.dataset_dir / TOKENIZER_FILE).unlink()
    with pytest.raises(FatalError, match="Put that file back, or remove the data set and prepare"):
        train_here(run)
