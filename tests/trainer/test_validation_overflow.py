"""A validation loss that is not finite, which may happen in float16, and ends a run in other
arithmetic.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from tests.trainer.lab import Lab, NoSignals, change_state, checkpoints, records
from trainer.checkpoint import retention, store
from trainer.config import RunConfig
from trainer.launch.exit_codes import FatalError, RetryableError
from trainer.parallel.device import Compute
from trainer.parallel.world import World
from trainer.train import train

WILD: dict[str, Any] = {
    "model__n_layer": 1,
    "train__global_batch_size": 4,
    "train__max_steps": 3,
    "train__warmup_steps": 0,
    "train__grad_clip": 0.0,
    "eval__batch_size": 512,
}
"""With a rate that is far too high, the first update makes weights that overflow."""


def train_in(dtype: torch.dtype, run: RunConfig) -> None:
    """Train the run in this process, with this arithmetic."""
    compute = Compute(torch.device("cpu"), "CPU", dtype, False, "gloo", ())
    train(run, World(), compute, NoSignals(), lambda: None)


def test_float16_overflow_ends_no_evaluated_run(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """An overflow in an evaluation of a float16 run gives a warning and null in the records, and
    the checkpoint is no candidate for the best one. The run goes on.
    """
    run = lab.config(**WILD, train__learning_rate=30.0, eval__interval=1)
    train_in(torch.float16, run)
    assert [record["val_loss"] for record in records(run)] == [None] * 3
    assert "warning: step 3: validation loss nan: float16 has overflowed" in capsys.readouterr().out
    assert json.loads((run.run_dir / "done.json").read_text())["val_loss"] is None
    assert retention.best_step(checkpoints(run)) is None


def test_repeated_evaluation_may_overflow_too(lab: Lab) -> None:
    """A start that repeats an evaluation and finds an infinite loss goes on."""
    run = lab.config(**WILD, train__learning_rate=30.0)
    train_in(torch.float16, run)
    change_state(run, 3, lambda state: state.update(val_loss=None, full_val_loss=None))
    (run.run_dir / "done.json").unlink()
    train_in(torch.float16, run)
    assert json.loads((run.run_dir / "done.json").read_text())["step"] == 3


def test_weights_that_diverged_are_found_by_evaluation(lab: Lab) -> None:
    """In float32 a validation loss that is not finite ends the run as a training loss does. The
    first time the run is tried again, the second time it is not.
    """
    run = lab.config(**WILD, train__learning_rate=1e30, eval__interval=1)
    there_is_none = "step 1 diverged: validation loss nan; there is no checkpoint yet"
    with pytest.raises(RetryableError, match=there_is_none):
        train_in(torch.float32, run)
    with pytest.raises(FatalError, match="it did so at the start before this one too"):
        train_in(torch.float32, run)
    assert store.all_steps(checkpoints(run)) == []
