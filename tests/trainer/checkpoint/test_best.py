"""Which checkpoint counts as the best one when an evaluation takes only a part of the validation
split.
"""

from __future__ import annotations

import errno
import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

import trainer.train
from tests.trainer.lab import Lab, NoSignals, change_state, checkpoints, records
from trainer.checkpoint import layout, retention, save, store
from trainer.checkpoint.tensors import model_tensors
from trainer.config import RunConfig
from trainer.data.dataset import open_dataset
from trainer.evaluate import Validation, evaluate
from trainer.model.gpt import GPT
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.train import train


def run_of(lab: Lab, max_tokens: int | None, **settings: Any) -> RunConfig:
    """Return a run on a text whose limited evaluation gives lower losses than an evaluation of all
    tokens.

    The limited evaluation takes one window, which lies in the first tenth of the split ("abab").
    """
    draw = Random(1)
    mixed = "".join(draw.choice("cdefghijkl") + "ab" * 6 for _ in range(700))
    file = lab.root / "uneven.txt"
    if not file.exists():
        file.write_text(mixed + "ab" * 56 + mixed[:900])
    changes: dict[str, Any] = {
        "dataset": {"name": "uneven", "file": str(file)},
        "model__n_layer": 1,
        "model__n_embd": 8,
        "train__max_steps": 40,
        "train__warmup_steps": 0,
        "eval__interval": 10,
        "eval__max_tokens": max_tokens,
        "checkpoint__asynchronous": False,
        "checkpoint__keep_last": 1,
    }
    return lab.config(**{**changes, **settings})


def train_here(run: RunConfig) -> None:
    """Train the run in this process, with one rank."""
    train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)


def measured(run: RunConfig, step: int, max_tokens: int | None) -> Validation:
    """Return the validation of one pass with the weights of a checkpoint."""
    dataset, root = open_dataset(run.dataset_dir), checkpoints(run)
    model = GPT(run.model, dataset.tokenizer.vocab_size)
    directory, saved = store.directory_of(root, step), store.load_layout(root, step)
    layout.read_into(directory, saved, model_tensors(model))
    found = evaluate(
        model,
        dataset,
        run.eval.batch_size,
        World(),
        torch.device("cpu"),
        nullcontext,
        lambda: False,
        max_tokens=max_tokens,
    )
    assert found is not None
    return found


def state_of(run: RunConfig, step: int) -> dict[str, Any]:
    return store.load_state(checkpoints(run), step)


def done(run: RunConfig) -> dict[str, Any]:
    """Return the content of the run's `done.json`."""
    return json.loads(Path(run.run_dir / "done.json").read_text())


def test_best_is_measured_by_equal_tokens(lab: Lab) -> None:
    """The best checkpoint is chosen by losses of the same tokens. The evaluation after the last
    step takes all tokens; if its loss were compared with those of a part, an earlier and worse
    checkpoint would be kept as the best one.
    """
    run = run_of(lab, 16)
    train_here(run)
    kept = store.all_steps(checkpoints(run))
    losses = {step: measured(run, step, 16).loss for step in kept}
    assert retention.best_step(checkpoints(run)) == min(kept, key=lambda step: losses[step])
    assert state_of(run, 40)["val_loss"] == pytest.approx(losses[40], rel=1e-5)
    whole = measured(run, 40, None).loss
    assert whole > losses[40]
    shown = (
        state_of(run, 40)["full_val_loss"],
        done(run)["val_loss"],
        records(run)[-1]["val_loss"],
    )
    assert shown == pytest.approx((whole,) * 3, rel=1e-5)


@pytest.mark.parametrize(("max_tokens", "passes"), [(None, 4), (2000, 4), (16, 5)])
def test_no_pass_is_made_twice(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, max_tokens: int | None, passes: int
) -> None:
    """A second evaluation after the last step is made only if `eval.max_tokens` leaves something
    out.
    """
    run, made = run_of(lab, max_tokens), list[bool]()

    def counted(*arguments: Any, **options: Any) -> Validation | None:
        found = evaluate(*arguments, **options)
        assert found is not None
        made.append(found.is_part)
        return found

    monkeypatch.setattr(trainer.train, "evaluate", counted)
    train_here(run)
    assert len(made) == passes
    assert made[-1] is False


def test_an_older_checkpoint_ends_its_run(lab: Lab) -> None:
    """A run whose last checkpoint is of an earlier version of the trainer ends with the same
    `done.json`. Those versions kept one loss, and after the last step the one of the whole split.
    """
    run = run_of(lab, 16)
    train_here(run)
    expected = done(run)

    def as_before(state: dict[str, Any]) -> None:
        state["val_loss"] = state.pop("full_val_loss")

    change_state(run, 40, as_before)
    (run.run_dir / "done.json").unlink()
    train_here(run)
    assert done(run) == expected


def test_a_lowered_end_takes_all_tokens(lab: Lab) -> None:
    """A run whose end is lowered to a step that was measured in part measures all tokens there."""
    settings: dict[str, Any] = {
        "train__decay_steps": 40,
        "checkpoint__interval": 10,
        "checkpoint__keep_last": 4,
    }
    longer = run_of(lab, 16, **settings)
    train_here(longer)
    for step in (30, 40):
        shutil.rmtree(store.directory_of(checkpoints(longer), step))
    (longer.run_dir / "done.json").unlink()
    run = run_of(lab, 16, **settings, train__max_steps=20)
    train_here(run)
    assert done(run)["val_loss"] == pytest.approx(measured(run, 20, None).loss, rel=1e-5)


def test_checkpoint_that_was_lost_is_not_best(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that was given up does not count as the best one. Otherwise later losses would be
    compared with its loss, and the best checkpoint that could be had would not be kept.
    """
    run, losses = run_of(lab, None), iter([2.0, 1.5, 1.6, 1.9])

    def measured_here(*arguments: Any, **options: Any) -> Validation:
        return Validation(loss := next(losses), 1.0, is_part=False, compared_loss=loss)

    write = save.write_file

    def fail_at_step_20(path: Path, pieces: Any) -> dict[str, Any]:
        if "step-00000020" in path.parent.name:
            raise OSError(errno.EIO, "Input/output error")
        return write(path, pieces)

    monkeypatch.setattr(trainer.train, "evaluate", measured_here)
    monkeypatch.setattr(save, "write_file", fail_at_step_20)
    train_here(run)
    assert store.all_steps(checkpoints(run)) == [40, 30]
    assert retention.best_step(checkpoints(run)) == 30
