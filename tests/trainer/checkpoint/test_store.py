"""Checkpoints on the volume: what is kept, what counts as damaged, and which errors end a save."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trainer.checkpoint import durable, layout, part_files, retention, store
from trainer.launch.exit_codes import FatalError, RetryableError


def save(root: Path, step: int, keep_last: int = 3, val_loss: float | None = None) -> None:
    """Save a checkpoint with the files that one rank writes, and remove old ones."""
    building = store.building_directory(root, step, "test")
    building.mkdir(parents=True)
    tensors = {
        "model.weight": torch.full((50,), float(step)),
        "optimizer.weight.exp_avg": torch.ones(50),
        "optimizer.weight.step": torch.tensor(float(step)),
    }
    saved, (files,) = layout.agree([layout.plan(tensors)])
    texts = {
        "state.json": json.dumps({"step": step, "note": f"at {step}", "val_loss": val_loss}),
        "layout.json": layout.to_text(saved),
    }
    contents = {name: text.encode() for name, text in texts.items()}
    for file in files:
        content = bytearray(file.size_bytes)
        for name, begin in file.begins:
            raw = tensors[name].reshape(-1).view(torch.uint8).numpy().tobytes()
            content[begin : begin + len(raw)] = raw
        contents[file.name] = bytes(content)
    try:
        entries = {
            name: part_files.write_file(building / name, [text]) for name, text in contents.items()
        }
        store.commit(building, step, entries)
    finally:
        shutil.rmtree(building, ignore_errors=True)  # as trainer.checkpoint.save does
    retention.prune(root, keep_last, keep_best=True, say=pytest.fail)


def latest(root: Path) -> tuple[int | None, list[str]]:
    """Return the newest verified step and what was said while looking for it."""
    lines: list[str] = []
    return store.latest_verified(root, lines.append), lines


def test_a_checkpoint_gives_back_what_was_saved(tmp_path: Path) -> None:
    save(tmp_path, 7)
    tensors = {"model.weight": torch.empty(50), "optimizer.weight.step": torch.empty(())}
    layout.read_into(tmp_path / "step-00000007", store.load_layout(tmp_path, 7), tensors)
    assert torch.equal(tensors["model.weight"], torch.full((50,), 7.0))
    assert tensors["optimizer.weight.step"] == 7
    assert store.load_state(tmp_path, 7) == {
        "step": 7,
        "note": "at 7",
        "val_loss": None,
    }
    assert latest(tmp_path) == (7, [])


def test_only_the_newest_ones_stay(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step, keep_last=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000004", "step-00000005"]


def test_steps_of_nine_digits_are_found(tmp_path: Path) -> None:
    """Checkpoints after 100,000,000 steps are found and removed like others. Otherwise a start
    would go on from an older one.
    """
    for step in (99_999_998, 99_999_999, 100_000_000, 100_000_001):
        save(tmp_path, step)
    assert store.all_steps(tmp_path) == [100_000_001, 100_000_000, 99_999_999]
    assert latest(tmp_path) == (100_000_001, [])


def test_the_best_one_stays_however_old_it_is(tmp_path: Path) -> None:
    """The checkpoint with the lowest loss is kept beside the newest ones until a better one is
    saved. Of two equal losses the earlier one counts.
    """
    for step, loss in ((1, 3.0), (2, 1.5), (3, None), (4, 2.0), (5, 1.5)):
        save(tmp_path, step, keep_last=2, val_loss=loss)
    assert retention.best_step(tmp_path) == 2  # the earlier of two equals
    assert store.all_steps(tmp_path) == [5, 4, 2]
    save(tmp_path, 6, keep_last=2, val_loss=1.0)
    assert store.all_steps(tmp_path) == [6, 5]


def test_one_set_aside_is_never_the_best_nor_one_of_the_last(tmp_path: Path) -> None:
    """A damaged checkpoint that was renamed counts neither as the best nor as one of the newest,
    and its files stay.
    """
    for step in (1, 2, 3):
        save(tmp_path, step, val_loss=float(4 - step))
    flip_a_bit(tmp_path / "step-00000003" / "model-00000.bin")  # its size stays the same
    newest, _ = latest(tmp_path)
    store.set_damaged_aside(tmp_path, newest)
    assert retention.best_step(tmp_path) == 2
    save(tmp_path, 4, keep_last=2)
    assert store.all_steps(tmp_path) == [4, 2]
    assert (tmp_path / "damaged-step-00000003" / "model-00000.bin").exists()


def test_each_start_over_keeps_the_earlier_ones(tmp_path: Path) -> None:
    """A run that starts over a second time keeps the checkpoints of the first time as well, also
    those of the same step. They may be undamaged, and of another data set or model.
    """
    for loss in (3.0, 2.0, 1.0):
        save(tmp_path, 7, val_loss=loss)
        store.set_damaged_aside(tmp_path, None)
    assert store.set_aside_names(tmp_path) == [
        "damaged-step-00000007",
        "damaged-step-00000007-2",
        "damaged-step-00000007-3",
    ]
    losses = [
        json.loads((tmp_path / name / "state.json").read_text())["val_loss"]
        for name in store.set_aside_names(tmp_path)
    ]
    assert losses == [3.0, 2.0, 1.0]


def test_a_second_one_of_the_same_step_replaces_the_first(tmp_path: Path) -> None:
    """A save of a step that has a checkpoint replaces it."""
    save(tmp_path, 1)
    save(tmp_path, 1, val_loss=2.0)
    assert retention.val_loss(tmp_path, 1) == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_one_that_was_replaced_half_is_replaced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that failed after it had moved the older checkpoint of its step aside can be tried
    again. The last save of a run is tried three times, and the run would otherwise end for good at
    the second try.
    """
    save(tmp_path, 1)
    fails = [True]

    def fsync_once_failing(directory: Path) -> None:
        if directory == tmp_path and fails.pop():
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(store, "fsync_directory", fsync_once_failing)
        with pytest.raises(OSError, match="Input/output error"):
            save(tmp_path, 1, val_loss=3.0)
    save(tmp_path, 1, val_loss=2.0)
    assert retention.val_loss(tmp_path, 1) == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_kill_while_one_is_replaced_leaves_the_first_or_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill at any moment of the replacement leaves one complete checkpoint of the step."""
    save(tmp_path, 1)
    seen: list[int | None] = []
    rename = Path.rename

    def look() -> None:
        """Note what a start would find after a kill at this moment."""
        left = tmp_path.with_name(f"killed-{len(seen)}")
        shutil.copytree(tmp_path, left)
        with monkeypatch.context() as looking:
            looking.setattr(Path, "rename", rename)
            store.remove_leftovers(left, pytest.fail)
        seen.append(latest(left)[0])
        assert [path.name for path in left.iterdir()] == ["step-00000001"]

    def rename_and_look(path: Path, target: Path) -> None:
        look()
        rename(path, target)
        look()

    monkeypatch.setattr(Path, "rename", rename_and_look)
    save(tmp_path, 1, val_loss=2.0)
    assert seen == [1, 1, 1, 1]


def test_checkpoints_are_found_and_checked_without_torch() -> None:
    """The module that finds and checks checkpoints does not import torch, which takes seconds, and
    more than a minute in the virtual machine of `tests/vm`.
    """
    program = "import sys, trainer.checkpoint.store; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False"]


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert latest(tmp_path / "none") == (None, [])
    assert latest(tmp_path) == (None, [])


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name",
    ["model-00000.bin", "optimizer-00000.bin", "layout.json", "state.json", "manifest.json"],
)
@pytest.mark.parametrize("damage", [truncate, flip_a_bit, Path.unlink])
def test_a_damaged_checkpoint_is_skipped_with_a_line_that_says_why(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    damage(tmp_path / "step-00000002" / name)
    step, lines = latest(tmp_path)
    assert step == 1
    assert len(lines) == 1
    assert lines[0].startswith("checkpoint step-00000002 skipped: ")
    if name != "manifest.json":
        assert name in lines[0]


def test_a_manifest_that_lists_nothing_verifies_nothing(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "step-00000001" / "manifest.json").write_text('{"files": {}}')
    assert latest(tmp_path)[0] is None


def test_a_damaged_checkpoint_can_be_saved_again(tmp_path: Path) -> None:
    save(tmp_path, 1)
    truncate(tmp_path / "step-00000001" / "model-00000.bin")
    save(tmp_path, 1)
    assert latest(tmp_path) == (1, [])


def test_damaged_ones_do_not_push_out_complete_ones(tmp_path: Path) -> None:
    """Damaged checkpoints do not count as some of the newest ones that are kept."""
    for step in (1, 2, 3):
        save(tmp_path, step)
    for step in (2, 3):
        truncate(tmp_path / f"step-{step:08d}" / "model-00000.bin")
    save(tmp_path, 4, keep_last=2)
    assert store.all_steps(tmp_path) == [4, 3, 2, 1]


def test_a_full_disk_leaves_the_earlier_ones_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)

    def no_space(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable.os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, 2, keep_last=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert latest(tmp_path) == (1, [])


class Disk:
    """Notes what fsync has made durable: the bytes of files, and the names in folders."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._durable: dict[int, object] = {}
        fsync = os.fsync

        def noted(descriptor: int) -> None:
            fsync(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}")
            self._durable[path.stat().st_ino] = self._content(path)

        monkeypatch.setattr(os, "fsync", noted)

    def would_lose(self, *paths: Path) -> list[str]:
        """Return those of these paths of which a power cut would leave something else."""
        kept = self._durable
        return [p.name for p in paths if kept.get(p.stat().st_ino) != self._content(p)]

    @staticmethod
    def _content(path: Path) -> object:
        return sorted(p.name for p in path.iterdir()) if path.is_dir() else path.read_bytes()


def test_power_cut_leaves_only_whole_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint gets its name only when its files and their names are durable, and the save
    counts only when that name is. Otherwise a power cut could leave the name without the files, and
    lose the step that `status` and the mirror already count on.
    """
    disk, rename, renamed = Disk(monkeypatch), Path.rename, list[str]()

    def rename_what_is_durable(path: Path, target: Path) -> None:
        assert disk.would_lose(path, *path.iterdir()) == []
        renamed.append(target.name)
        rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_what_is_durable)
    save(tmp_path, 1)
    assert renamed == ["step-00000001"]
    assert disk.would_lose(tmp_path) == []


def test_file_of_a_run_is_replaced_wholly_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file, such as the marker of a finished run, is durable when its writing has ended. A
    write that the disk refuses leaves the file as it was, and nothing beside it.
    """
    path = tmp_path / "done.json"
    with monkeypatch.context() as watched:
        disk = Disk(watched)
        durable.write_json(path, {"step": 1})
        assert disk.would_lose(path, tmp_path) == []

    def no_space(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        durable.write_json(path, {"step": 2})
    assert json.loads(path.read_text()) == {"step": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["done.json"]


def test_error_of_a_folders_fsync_fails_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save fails if the storage fails at the fsync of a folder. Only a file system that cannot do
    it at all is excused.
    """
    fsync = os.fsync

    def fail_for_directories(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_directories)
    with pytest.raises(OSError, match="Input/output error"):
        save(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_an_interrupted_save_are_ignored_and_removed(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / ".tmp-step-00000002-99").mkdir()
    (tmp_path / ".tmp-step-00000002-99" / "model-00000.bin").write_bytes(b"half")
    assert latest(tmp_path) == (1, [])
    store.remove_leftovers(tmp_path, pytest.fail)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_the_manifest_lists_sizes_and_checksums_of_all_other_files(tmp_path: Path) -> None:
    save(tmp_path, 1)
    directory = tmp_path / "step-00000001"
    files = json.loads((directory / "manifest.json").read_text())["files"]
    assert set(files) == {"model-00000.bin", "optimizer-00000.bin", "layout.json", "state.json"}
    for name, entry in files.items():
        assert entry["bytes"] == (directory / name).stat().st_size
        assert entry["sha256"] == durable.sha256_of(directory / name)


def refuse_removal(path: Path, ignore_errors: bool = False) -> None:
    """Stands in for `shutil.rmtree` on network storage, where a file is still open somewhere."""
    raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))


def test_a_failed_removal_of_old_ones_is_only_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old checkpoints that cannot be removed give a message each and do not end the run, and a
    later start removes them. Network storage refuses a removal while a file is still open
    somewhere.
    """
    for step in (1, 2, 3):
        save(tmp_path, step)
    said: list[str] = []

    with monkeypatch.context() as failing:
        failing.setattr(store.shutil, "rmtree", refuse_removal)
        retention.prune(tmp_path, 1, keep_best=False, say=said.append)
        assert ["could not be removed" in line for line in said] == [True, True]
        assert latest(tmp_path) == (3, [])
        store.remove_leftovers(tmp_path, said.append)
        assert len(said) == 4
    store.remove_leftovers(tmp_path, pytest.fail)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]


def test_removal_that_failed_is_repeated_after_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be removed of an old checkpoint is removed after the next save. A run of weeks
    would otherwise fill the volume with such remains, which only its next start removes.
    """
    for step in (1, 2):
        save(tmp_path, step)
    said: list[str] = []

    with monkeypatch.context() as failing:
        failing.setattr(store.shutil, "rmtree", refuse_removal)
        retention.prune(tmp_path, 1, keep_best=False, say=said.append)
    assert len(said) == 1
    save(tmp_path, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]


def test_a_system_without_advice_about_pages_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large files are written also where the system has no `posix_fadvise`, as macOS. Otherwise the
    first file of 64 MiB would end the run.
    """
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    monkeypatch.setattr(part_files, "_WRITE_BACK_BYTES", 4)
    assert part_files.write_file(tmp_path / "part", [b"12345678"])["bytes"] == 8


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_without_fsync_of_directories_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Checkpoints are saved also where fsync of a directory is refused, as by FUSE and SMB."""
    fsync = durable.os.fsync

    def refuse_directories(descriptor: int) -> None:
        if stat.S_ISDIR(durable.os.fstat(descriptor).st_mode):
            raise OSError(number, "not for directories")
        fsync(descriptor)

    monkeypatch.setattr(durable.os, "fsync", refuse_directories)
    save(tmp_path, 1)
    assert latest(tmp_path) == (1, [])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), FatalError),
        (OSError(errno.EIO, "Input/output error"), RetryableError),
    ],
)
def test_an_unreadable_file_is_no_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, kind: type[Exception]
) -> None:
    """A checkpoint that cannot be read for lack of rights, or because the storage fails, is an
    error and is not skipped as damaged, for `sample` and `export` as well. Only an error of the
    storage may go away when the run is started again.
    """
    save(tmp_path, 1)
    save(tmp_path, 2)

    def fail(path: Path) -> str:
        raise error

    monkeypatch.setattr(store, "sha256_of", fail)
    with pytest.raises(kind, match="step-00000002 cannot be read"):
        latest(tmp_path)
