"""Where a run continues. It never starts at step 0 beside checkpoints that it cannot use."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from tests.trainer.lab import (
    Lab,
    NoSignals,
    change_state,
    checkpoints,
    last_step,
    records,
    text_of_words,
)
from trainer import set_up
from trainer.checkpoint import store
from trainer.checkpoint.durable import sha256_of
from trainer.checkpoint.resume import STATE_FORMAT, Wanted, find_checkpoint
from trainer.checkpoint.run_identity import read_done_marker
from trainer.checkpoint.run_lock import RunLock
from trainer.config import RunConfig
from trainer.data.dataset import open_dataset
from trainer.data.prepare import prepare
from trainer.launch.exit_codes import ExitCode, FatalError, RetryableError
from trainer.mirror.contents import remote_manifests
from trainer.mirror.push import Pusher, mirror_folder
from trainer.mirror.start_over import has_started_over, note_start_over
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.train import TrainingEnd, train


def run_here(run: RunConfig) -> TrainingEnd:
    """Train the run in this process, with one rank."""
    return train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)


def trained(lab: Lab, **settings: Any) -> RunConfig:
    """Return a run that has trained 8 steps, with checkpoints of steps 4 and 8."""
    run = lab.config(train__max_steps=8, train__decay_steps=20, checkpoint__interval=5, **settings)
    run_here(run)
    return run


def longer(lab: Lab, **settings: Any) -> RunConfig:
    """Return the settings of the same run with 12 steps."""
    return lab.config(
        train__max_steps=12, train__decay_steps=20, checkpoint__interval=5, **settings
    )


def test_a_run_never_starts_over_beside_bad_checkpoints(lab: Lab) -> None:
    """A run whose checkpoints are all damaged ends, names them, and touches nothing. Otherwise it
    would start at step 0 and empty `metrics.jsonl`.
    """
    run = trained(lab)
    for step in store.all_steps(checkpoints(run)):
        (store.directory_of(checkpoints(run), step) / "model-00000.bin").write_bytes(b"x")
    before = sorted(path.name for path in checkpoints(run).iterdir())
    with pytest.raises(FatalError) as caught:
        run_here(longer(lab))
    assert "step-00000008 skipped: model-00000.bin has 1 bytes" in str(caught.value)
    assert "step-00000004 skipped: model-00000.bin has 1 bytes" in str(caught.value)
    assert "checkpoint.start_over" in str(caught.value)
    assert sorted(path.name for path in checkpoints(run).iterdir()) == before
    assert last_step(run) == 8


def test_start_over_keeps_the_old_checkpoints_and_metrics(lab: Lab) -> None:
    """With `checkpoint.start_over` a run whose checkpoints are all damaged starts at step 0, and
    keeps them and the old metrics under other names. When only checkpoints with such names are left
    later, a run without that setting does not start.
    """
    run = trained(lab)
    for step in store.all_steps(checkpoints(run)):
        (store.directory_of(checkpoints(run), step) / "model-00000.bin").write_bytes(b"x")
    again = longer(lab, checkpoint__start_over=True)
    run_here(again)
    assert [record["step"] for record in records(again)] == list(range(1, 13))
    names = {path.name for path in checkpoints(run).iterdir()}
    assert {"damaged-step-00000004", "damaged-step-00000008", "step-00000012"} <= names
    kept = [*again.run_dir.glob("metrics-before-*.jsonl")]
    assert len(kept) == 1
    assert len(kept[0].read_text().splitlines()) == 8
    for step in store.all_steps(checkpoints(run)):
        (store.directory_of(checkpoints(run), step) / "manifest.json").unlink()
        store.directory_of(checkpoints(run), step).rename(checkpoints(run) / f"damaged-step-{step}")
    with pytest.raises(FatalError, match="damaged-step-00000008 was set aside"):
        run_here(longer(lab))


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.EACCES, FatalError, "This process runs as user"),
        (errno.EIO, RetryableError, "it was left as it is"),
        (errno.ESTALE, RetryableError, "it was left as it is"),
        (None, RetryableError, "too little memory"),
    ],
)
def test_what_cannot_be_read_is_not_damaged(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    number: int | None,
    kind: type[Exception],
    words: str,
) -> None:
    """Missing rights, failing storage and lack of memory do not count as damage: the checkpoints
    stay, and a later start uses them.

    Reading is replaced by a stand-in that fails, because root can read every file.
    """
    run = trained(lab)

    def fail(path: Path) -> str:
        raise MemoryError if number is None else OSError(number, "cannot", str(path))

    more = longer(lab)
    with monkeypatch.context() as failing:
        failing.setattr(store, "sha256_of", fail)
        with pytest.raises(kind, match=words):
            run_here(more)
    assert store.all_steps(checkpoints(run)) == [8, 4]
    assert run_here(longer(lab)).step == 12


def test_a_checkpoint_of_a_later_version_is_named(lab: Lab) -> None:
    """A checkpoint with a later format number is refused, with the reason that a later version of
    the trainer has saved it.
    """
    run = trained(lab, checkpoint__keep_last=1)
    change_state(run, 8, lambda state: state.update(format=STATE_FORMAT + 1))
    with pytest.raises(FatalError, match="saved by a later version of the trainer"):
        run_here(longer(lab, checkpoint__keep_last=1))


def test_a_model_setting_that_did_not_exist_then_has_its_default(lab: Lab) -> None:
    """A checkpoint from before a `model.*` setting existed can be continued, and counts as having
    its default.
    """
    run = trained(lab, model__gelu="exact")
    for step in store.all_steps(checkpoints(run)):
        change_state(run, step, lambda state: state["identity"].pop("model.gelu"))
    (run.run_dir / "done.json").unlink()
    assert run_here(longer(lab, model__gelu="exact")).step == 12


def test_initial_weights_are_read_at_the_first_start_only(lab: Lab) -> None:
    """A run with checkpoints continues although the file of its initial weights is gone. A new run
    needs the file.
    """
    trained(lab)
    gone = longer(lab, train__initial_weights=str(lab.root / "gone.safetensors"))
    assert run_here(gone).step == 12
    with pytest.raises(FatalError, match=r"gone\.safetensors"):
        run_here(
            lab.config(run_name="new", train__initial_weights=str(lab.root / "gone.safetensors"))
        )


def test_starts_over_replace_no_metrics(lab: Lab) -> None:
    """A start over never replaces metrics that an earlier one has kept, also after somebody has
    removed some of them.
    """
    run = trained(lab)
    shutil.rmtree(store.directory_of(checkpoints(run), 4))
    directory = store.directory_of(checkpoints(run), 8)
    directory.rename(directory.with_name(f"damaged-{directory.name}"))
    kept = run.run_dir / "metrics-before-2.jsonl"
    kept.write_text("kept\n")
    run_here(longer(lab, checkpoint__start_over=True))
    assert kept.read_text() == "kept\n"
    assert len((run.run_dir / "metrics-before-3.jsonl").read_text().splitlines()) == 8


def test_changed_evaluation_tokens_are_said(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """A change of `eval.max_tokens` gives one warning, because losses before and after are of other
    tokens, and so is what counts as the best checkpoint.
    """
    run_here(lab.config(train__max_steps=8, train__decay_steps=12))
    run_here(lab.config(train__decay_steps=12, train__max_steps=12, eval__max_tokens=64))
    out = capsys.readouterr().out
    assert "warning: eval.max_tokens was not set before, now it is 64" in out
    run_here(lab.config(train__decay_steps=12, train__max_steps=13, eval__max_tokens=64))
    assert "eval.max_tokens" not in capsys.readouterr().out


def test_replaced_validation_split_is_said_once(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other validation tokens beside the same training tokens give one warning, because losses
    before and after are of other tokens. A checkpoint of an earlier version, which does not know
    its validation tokens, gives none.
    """
    run = lab.config(train__max_steps=4, train__decay_steps=12)
    run_here(run)
    split, meta_file = run.dataset_dir / "val.bin", run.dataset_dir / "meta.json"
    split.write_bytes(np.fromfile(split, np.uint16)[::-1].tobytes())
    meta = json.loads(meta_file.read_text())
    meta["splits"]["val"]["sha256"] = sha256_of(split)
    meta_file.write_text(json.dumps(meta))
    capsys.readouterr()
    words = "warning: the validation split of dataset words has been replaced"
    for steps, times in ((6, 1), (8, 0)):
        run_here(lab.config(train__max_steps=steps, train__decay_steps=12))
        assert capsys.readouterr().out.count(words) == times
    change_state(run, 8, lambda state: state.pop("val_sha256"))
    run_here(lab.config(train__max_steps=9, train__decay_steps=12))
    assert "validation split" not in capsys.readouterr().out


def test_a_changed_horizon_of_the_learning_rate_is_said(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run whose `max_steps` was raised tells that the decay of the learning rate now ends later,
    and how to keep it. Otherwise the learning rate would jump up without a word.
    """
    run_here(lab.config(train__max_steps=8))
    run_here(lab.config(train__max_steps=12))
    out = capsys.readouterr().out
    assert "the learning rate decayed until step 8 before, now until step 12" in out
    assert "set train.decay_steps to 8 to keep it" in out


def test_damaged_metrics_do_not_end_a_healthy_run(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run continues with a message when `metrics.jsonl` has damaged lines, such as zeros after a
    power cut. They are left out.
    """
    run = trained(lab)
    path = run.run_dir / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[2] = bytes(20)
    lines[4] = b"\xff\xfe"
    path.write_bytes(b"\n".join(lines))
    again = longer(lab)
    assert run_here(again).step == 12
    assert [record["step"] for record in records(again)] == [1, 2, 4, 6, 7, 8, 9, 10, 11, 12]
    assert "has 2 damaged line(s)" in capsys.readouterr().out


def test_two_writers_of_one_run_are_kept_apart(lab: Lab) -> None:
    """A second process cannot write the run while a first one does, and a process that has given up
    the run finds out that another one has it. Otherwise two stacks with one `run_name` would delete
    each other's files.
    """
    run = lab.config()
    first, second = RunLock(run.run_dir), RunLock(run.run_dir, wait_seconds=0.3)
    first.acquire()
    with pytest.raises(RetryableError, match=r"another process writes this run: process \d+ on "):
        second.acquire()
    first.check()
    first.release()
    second.acquire()
    with pytest.raises(RetryableError, match="another process has taken over this run"):
        first.check()
    second.release()


def test_writer_waits_for_one_that_is_about_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process waits for the lock of one that is about to end, such as the previous start of the
    run, and then its own name is in the file, whatever was in it.
    """
    monkeypatch.setenv("POD_NAME", "the-pod-of-a-longer-name-0")
    ending = RunLock(tmp_path)
    ending.acquire()
    monkeypatch.delenv("POD_NAME")
    monkeypatch.setattr("trainer.checkpoint.run_lock.time.sleep", lambda _: ending.release())
    lock = RunLock(tmp_path)
    lock.acquire()
    lock.check()
    lock.release()


def test_a_writer_that_was_replaced_puts_nothing_in_place(tmp_path: Path) -> None:
    """A process that no longer owns the run cannot put a checkpoint in place. Locks do not help on
    a network that is cut in two, so the owner is read again before each rename.
    """
    old, new = RunLock(tmp_path), RunLock(tmp_path)
    old.acquire()
    old.release()
    new.acquire()
    building = store.building_directory(tmp_path / "checkpoints", 1, "old")
    building.mkdir(parents=True)
    with pytest.raises(RetryableError, match="taken over"):
        store.commit(building, 1, {}, old.check)
    assert store.all_steps(tmp_path / "checkpoints") == []
    assert [*(tmp_path / "checkpoints").iterdir()] == []
    new.release()


def take_locks_away(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the kernel answer with this error number when a lock is asked for, as on Lustre without
    `-o flock`.
    """

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_displaced_writer_without_locks_stays_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """On a file system without locks, a process that another one has displaced fails for good and
    names both pods. Two processes that take the run from each other would never complete a
    checkpoint.
    """

    take_locks_away(monkeypatch, number)
    said = list[str]()
    monkeypatch.setenv("POD_NAME", "one-0")
    first = RunLock(tmp_path)
    first.acquire(said.append)
    first.check()
    assert len(said) == 1
    assert f"the file system of {tmp_path}/run.lock has no locks" in said[0]
    monkeypatch.setenv("POD_NAME", "two-0")
    second = RunLock(tmp_path)
    second.acquire(said.append)
    with pytest.raises(FatalError, match=r"in pod two-0 owns .* in pod one-0: .* run_name"):
        first.check()
    second.check()


def test_lost_lock_file_is_no_displacement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock file that somebody has removed is no reason to fail for good. Nobody else writes the
    run, and the next start makes the file again.
    """

    take_locks_away(monkeypatch, errno.ENOSYS)
    lock = RunLock(tmp_path)
    lock.acquire()
    (tmp_path / "run.lock").unlink()
    with pytest.raises(RetryableError, match="an unknown process"):
        lock.check()
    (tmp_path / "run.lock").write_text("")  # the next start has not written its name yet
    with pytest.raises(RetryableError, match="an unknown process"):
        lock.check()


def test_all_shapes_must_fit(lab: Lab) -> None:
    """A checkpoint with tensors of other shapes than the model's is refused."""
    run = trained(lab)
    lock = RunLock(run.run_dir)
    wanted = Wanted({"wte.weight": torch.Size([1])}, open_dataset(run.dataset_dir).fingerprint)
    with pytest.raises(FatalError, match="it holds other tensors than this model") as refusal:
        find_checkpoint(run, World(), wanted, lock, lambda line: None)
    assert "has changed since then" not in str(refusal.value)
    lock.release()


def test_same_tokens_may_have_another_name(lab: Lab) -> None:
    """A run continues with the same tokens under another name of the data set. Otherwise a run
    whose data set another stack has replaced under its name could not get it back beside that one.
    """
    run = trained(lab)
    text = lab.root / "other.txt"
    text.write_text(text_of_words()[::-1])
    prepare(lab.config(dataset__file=str(text)))  # another stack, with the same name
    with pytest.raises(FatalError, match=r"words has changed since run .* dataset\.name"):
        run_here(longer(lab))
    again = longer(lab, dataset__name="words-again")
    prepare(again)
    run_here(again)
    assert store.all_steps(checkpoints(run))[0] == 12
    with pytest.raises(FatalError, match=r"dataset\.name: 'words' now, 'words-again' in step-"):
        run_here(lab.config(train__max_steps=16, train__decay_steps=20, dataset__file=str(text)))


def test_a_finished_run_knows_its_tokens_under_another_name(lab: Lab) -> None:
    """A finished run stays finished, and goes on with more steps, if its data set gets another name
    and has the same tokens. Otherwise its pods would end as failed for good when they come back.
    """
    trained(lab)
    again = longer(lab, dataset__name="words-again")  # `Lab.config` prepares it
    finished = read_done_marker(lab.config(train__max_steps=8, dataset__name="words-again"))
    assert finished is not None
    assert finished["step"] == 8
    assert read_done_marker(again) is None
    text = lab.root / "other.txt"
    text.write_text(text_of_words()[::-1])
    with pytest.raises(FatalError, match=r"dataset\.name: 'other' now, 'words' in done\.json"):
        read_done_marker(longer(lab, dataset__name="other", dataset__file=str(text)))
    shutil.rmtree(again.dataset_dir)
    with pytest.raises(FatalError, match=r"dataset\.name: 'words-again' now, 'words' in done"):
        read_done_marker(again)


def test_another_run_is_refused_before_its_model_is_made(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings or data of another run are named before the model gets memory, which may be too
    little for a larger one. Nothing is renamed, although a newer checkpoint is damaged.
    """
    run = trained(lab)
    (checkpoints(run) / "step-00000008" / "model-00000.bin").write_bytes(b"x")
    text = lab.root / "other.txt"
    text.write_text(text_of_words()[::-1])  # The same characters, in another order.
    before = names(run)

    def no_memory(*_: Any) -> NoReturn:
        raise torch.OutOfMemoryError("the model was made")

    monkeypatch.setattr(set_up, "Parallel", no_memory)
    with pytest.raises(FatalError, match=r"model\.n_layer: 300 now, 2 in step-00000004"):
        run_here(longer(lab, model__n_layer=300))
    other = longer(lab, dataset__file=str(text))
    prepare(other)
    with pytest.raises(FatalError, match="dataset words has changed since run"):
        run_here(other)
    assert names(run) == before


def test_a_run_directory_of_another_user_is_named(tmp_path: Path) -> None:
    """A run folder that this user cannot write gives an error that says so, as when root has
    restored the run and the pod runs as another user.
    """
    tmp_path.chmod(0o755)
    pid = os.fork()
    if pid == 0:  # root may write everywhere, so another user has to try
        code = 1
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setuid(65534)
            else:
                tmp_path.chmod(0o555)
            RunLock(tmp_path).acquire()
        except FatalError as error:
            code = 0 if "cannot be written" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    tmp_path.chmod(0o755)


def names(run: RunConfig) -> list[str]:
    """Return the names in the run's folder of checkpoints."""
    return sorted(path.name for path in checkpoints(run).iterdir())


def fill_mirror(run: RunConfig) -> None:
    """Copy the run's checkpoints to its mirror until the mirror has them all."""
    pusher = Pusher(run.checkpoint, run.run_dir, mirror_folder(run), print)
    while pusher.push_next():
        pass


def damage_all(run: RunConfig) -> None:
    """Make a file of each of the run's checkpoints too short."""
    for step in store.all_steps(checkpoints(run)):
        (store.directory_of(checkpoints(run), step) / "model-00000.bin").write_bytes(b"x")


def test_refused_start_with_mirror_changes_nothing(lab: Lab) -> None:
    """A start that is refused because the model differs from the checkpoints renames none of them,
    and does not ask the mirror, which has no better ones. Both ranks end without waiting for the
    mirror.
    """
    mirror = {"checkpoint__mirror": f"file://{lab.root}/mirror"}
    run = trained(lab, **mirror)
    fill_mirror(run)
    text = lab.root / "other.txt"
    text.write_text(text_of_words().replace("q", "xyz"))
    before = names(run)
    assert before == ["step-00000004", "step-00000008"]
    other = longer(lab, dataset__file=str(text), **mirror)
    prepare(other)
    lab.train(other, 2, expect=ExitCode.FATAL)
    log = lab.rank_log(other, 0).read_text()
    assert "it holds other tensors than this model" in log
    assert "dataset words has changed since then" in log  # its vocabulary has the size of a tensor
    assert names(run) == before
    assert last_step(run) == 8


def test_mirror_without_checkpoints_changes_nothing(lab: Lab) -> None:
    """Damaged checkpoints keep their names if the mirror has no good one. They are renamed only
    once it has brought one.
    """
    mirror = {"checkpoint__mirror": f"file://{lab.root}/mirror"}
    run = trained(lab, **mirror)
    damage_all(run)
    before = names(run)
    with pytest.raises(FatalError, match="none of them can be used"):
        run_here(longer(lab, **mirror))
    assert names(run) == before


def test_all_ranks_say_why_rank_0_ends_the_run(lab: Lab) -> None:
    """All ranks end with the reason that rank 0 has. The rank that reports first gives the reason
    of the node, which `./disttrain status` shows.
    """
    run = trained(lab)
    damage_all(run)
    lab.train(longer(lab), 2, expect=ExitCode.FATAL)
    for rank in range(2):
        log = lab.rank_log(run, rank).read_text()
        assert "has checkpoints in" in log
        assert "set checkpoint.start_over to true" in log


def test_mirror_replaces_checkpoints_that_are_damaged(lab: Lab) -> None:
    """A run whose checkpoints are all damaged continues from the mirror, and keeps the damaged ones
    under other names.
    """
    mirror = {"checkpoint__mirror": f"file://{lab.root}/mirror"}
    run = trained(lab, **mirror)
    fill_mirror(run)
    damage_all(run)
    assert run_here(longer(lab, **mirror)).step == 12
    assert names(run)[:2] == ["damaged-step-00000004", "damaged-step-00000008"]
    assert store.all_steps(checkpoints(run)) == [12, 8]
    assert [record["step"] for record in records(run)] == list(range(1, 13))


def test_mirror_does_not_offer_an_ended_training(lab: Lab) -> None:
    """A run that starts over takes the checkpoints of before out of the mirror. Otherwise a new
    volume would get the newest of them, and what was trained since then would be lost.
    """
    mirror = {"checkpoint__mirror": f"file://{lab.root}/mirror"}
    run = trained(lab, **mirror)
    for step in store.all_steps(checkpoints(run)):
        change_state(run, step, lambda state: state.update(format=STATE_FORMAT + 1))
    fill_mirror(run)
    again = lab.config(
        train__max_steps=4,
        train__decay_steps=20,
        checkpoint__interval=5,
        checkpoint__start_over=True,
        **mirror,
    )
    run_here(again)
    fill_mirror(again)
    assert sorted(remote_manifests(mirror_folder(again))) == [4]
    shutil.rmtree(run.run_dir)
    assert run_here(longer(lab, **mirror)).step == 12
    assert store.all_steps(checkpoints(run)) == [12, 8]
    assert [record["step"] for record in records(run)] == list(range(1, 13))


def test_run_that_goes_on_keeps_its_mirror(lab: Lab) -> None:
    """If the checkpoints fit again, because the settings were put back, nothing has ended, and the
    mirror keeps its checkpoints.
    """
    mirror = {"checkpoint__mirror": f"file://{lab.root}/mirror"}
    run = trained(lab, **mirror)
    fill_mirror(run)
    note_start_over(run.run_dir)
    assert run_here(longer(lab, **mirror)).step == 12
    assert not has_started_over(run.run_dir)
    fill_mirror(run)
    assert sorted(remote_manifests(mirror_folder(run))) == [8, 12]
