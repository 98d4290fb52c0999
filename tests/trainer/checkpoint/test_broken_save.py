"""A save whose writing thread fails for another reason than the storage, in a run of one rank."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from trainer.checkpoint import save, store
from trainer.checkpoint.run_lock import RunLock
from trainer.checkpoint.save import Save
from trainer.config import RunConfig
from trainer.parallel.world import World
from trainer.run_folder import CHECKPOINTS_DIR

STEP = 7


@pytest.fixture
def run(tmp_path: Path) -> RunConfig:
    """Return a run whose folder is in `tmp_path`."""
    return RunConfig.from_mapping({"data_root": str(tmp_path), "dataset": {"file": "text"}})


def begin(saver: Save) -> None:
    """Begin a save of one tensor at step `STEP`."""
    tensors = {"model.weight": torch.full((50,), math.pi)}
    saver.begin(STEP, tensors, {"step": STEP}, "", is_last=False)


def test_broken_save_leaves_earlier_one_alone(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that fails by an unexpected error leaves a good checkpoint of the same step in place,
    also when the process waits for saves at its end. Otherwise a checkpoint without files would
    replace it.
    """
    root, said = run.run_dir / CHECKPOINTS_DIR, list[str]()
    lock = RunLock(run.run_dir)
    lock.acquire()
    saver = Save(run, World(), torch.device("cpu"), "tag", lock, said.append)
    begin(saver)
    saver.wait()
    assert store.complete_steps(root) == [STEP]
    said.clear()

    def cannot_start_a_thread(*unused: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(save, "write_file", cannot_start_a_thread)
    begin(saver)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        saver.wait()
    saver.drain()
    lock.release()
    assert store.latest_verified(root, pytest.fail) == STEP
    assert not [line for line in said if "saved" in line]
