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
from trainer.mirror.status import STATUS_FILE, MirrorStatus, write_status
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


def test_unreadable_status_of_mirror_fails_no_save(tmp_path: Path) -> None:
    """A checkpoint that is in place counts as saved although the mirror's status cannot be read,
    which says what must not be removed. So nothing is removed. Otherwise the third such save would
    end the run, whose checkpoints are all complete.
    """
    settings = {
        "data_root": str(tmp_path),
        "dataset": {"file": "text"},
        "checkpoint": {"mirror": f"file://{tmp_path}/mirror", "keep_last": 1},
    }
    run, said = RunConfig.from_mapping(settings), list[str]()
    root, status = run.run_dir / CHECKPOINTS_DIR, run.run_dir / STATUS_FILE
    lock = RunLock(run.run_dir)
    lock.acquire()
    saver = Save(run, World(), torch.device("cpu"), "tag", lock, said.append)
    status.mkdir()  # not even root can read a folder as a file
    tensors = {"model.weight": torch.full((50,), math.pi)}
    for step in (1, 2):
        saver.begin(step, tensors, {"step": step}, "", is_last=False)
        saver.wait()
    assert saver.safe_step == 2
    assert store.complete_steps(root) == [2, 1]
    assert len([line for line in said if "old checkpoints were not looked at" in line]) == 2
    status.rmdir()
    saver.begin(3, tensors, {"step": 3}, "", is_last=False)
    saver.wait()
    assert store.complete_steps(root) == [3]
    lock.release()


def test_checkpoint_stays_while_the_mirror_copies_it(tmp_path: Path) -> None:
    """A checkpoint that is being copied to the mirror is not removed from the volume, although it
    is too old. Otherwise a copy that takes longer than a few saves would never be completed.
    """
    settings = {
        "data_root": str(tmp_path),
        "dataset": {"file": "text"},
        "checkpoint": {
            "mirror": f"file://{tmp_path}/mirror",
            "keep_last": 1,
            "keep_best": False,
        },
    }
    run = RunConfig.from_mapping(settings)
    root, kept = run.run_dir / CHECKPOINTS_DIR, list[list[int]]()
    lock = RunLock(run.run_dir)
    lock.acquire()
    saver = Save(run, World(), torch.device("cpu"), "tag", lock, [].append)
    tensors = {"model.weight": torch.full((50,), math.pi)}
    for step, copied in ((1, 1), (2, 1), (3, None)):
        write_status(run.run_dir, MirrorStatus(copying_step=copied))
        state = {"step": step, "val_loss": float(step)}  # the first one is the best one
        saver.begin(step, tensors, state, "", is_last=False)
        saver.wait()
        kept.append(store.complete_steps(root))
    assert kept == [[1], [2, 1], [3]]
    lock.release()
