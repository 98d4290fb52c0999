"""A save whose writing thread fails for another reason than the storage, in a run of one rank."""

from __future__ import annotations

import errno
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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


def test_failures_of_saves_count_anew_after_a_good_one_and_for_the_last_one(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only failures in a row end the run, so each complete checkpoint begins a new row. The last
    save begins one too, and is repeated. Otherwise the steps before a stop would be lost to a
    failure of the storage that is over a moment later.
    """
    write, outcomes = save.write_file, list[bool]()

    def write_or_fail(path: Path, pieces: Iterable[bytes | memoryview]) -> dict[str, Any]:
        if path.name == store.STATE_FILE and not outcomes.pop(0):
            raise OSError(errno.EIO, "Input/output error")
        return write(path, pieces)

    monkeypatch.setattr(save, "write_file", write_or_fail)
    monkeypatch.setattr(save, "_PAUSE_SECONDS", 0)
    lock, tensors = RunLock(run.run_dir), {"model.weight": torch.full((50,), math.pi)}
    lock.acquire()
    saver = Save(run, World(), torch.device("cpu"), "tag", lock, [].append)
    safe_steps = list[int]()
    for step, tries in enumerate(([0], [0], [1], [0], [0], [0, 0, 1]), 1):
        outcomes += map(bool, tries)
        saver.begin(step, tensors, {"step": step}, "", is_last=step == 6)
        saver.wait()
        assert not outcomes
        safe_steps.append(saver.safe_step)
    assert safe_steps == [0, 0, 3, 3, 3, 6]
    lock.release()


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
