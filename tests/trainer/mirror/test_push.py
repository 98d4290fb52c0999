"""A checkpoint reaches a real S3 server whole, or counts as absent there."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
import s3fs

from tests.gate import Gate
from tests.trainer.mirror.checkpoints import files_of, write_checkpoint
from tests.trainer.mirror.volume import Volume
from trainer.config import CheckpointConfig
from trainer.launch.exit_codes import FatalError
from trainer.mirror.contents import remote_manifests
from trainer.mirror.remote_folder import RemoteFolder, StoreError
from trainer.mirror.status import read_status, step_being_copied

MANY_BYTES = 20 * 2**20  # two parts of an upload
WITHIN_THE_FIRST_PART = 10 * 2**20


@pytest.fixture
def volume(tmp_path: Path, bucket: str) -> Volume:
    """Return a volume whose mirror is below a prefix of the bucket."""
    return Volume(tmp_path / "words", f"s3://{bucket}/some/prefix")


class Clock:
    """A stand-in for the module `time` that only counts the seconds, so that nobody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def remote(objects: Path) -> Path:
    """Return the folder in which the server keeps the run's checkpoints."""
    return objects / "some" / "prefix" / "words" / "checkpoints"


def test_newest_and_best_checkpoints_reach_the_store(volume: Volume, remote: Path) -> None:
    """The newest and the best checkpoint are copied to the store, and the status names the newest
    one.
    """
    best = write_checkpoint(volume.root, 10, val_loss=1.0)
    write_checkpoint(volume.root, 20, val_loss=3.0)
    newest = write_checkpoint(volume.root, 30, val_loss=2.0)
    volume.push()
    assert files_of(remote, 30) == newest
    assert files_of(remote, 10) == best
    assert read_status(volume.run_dir).newest_step == 30
    assert step_being_copied(volume.run_dir) is None


def test_damaged_state_does_not_end_the_copies(volume: Volume, remote: Path) -> None:
    """A damaged `state.json` in the mirror does not keep it from copying further checkpoints and
    removing old ones. Otherwise the process would end with a traceback after each copy. Here the
    best checkpoint is damaged, which is then removed as an old one and copied anew.
    """
    best = write_checkpoint(volume.root, 10, val_loss=10.0)
    volume.push()
    for step in (20, 30, 40):
        (remote / "step-00000010" / "state.json").write_bytes(b'{"step": 10, "val')
        write_checkpoint(volume.root, step, val_loss=float(step))
        volume.push()
    assert _names(remote) == ["step-00000010", "step-00000030", "step-00000040"]
    assert files_of(remote, 10) == best


def test_mirror_keeps_checkpoints_by_the_volumes_rules(volume: Volume, remote: Path) -> None:
    """The mirror keeps the last checkpoints and the best one, as the volume does."""
    for step in (10, 20, 30, 40):
        write_checkpoint(volume.root, step, val_loss=float(step))
        volume.push()
    assert _names(remote) == [
        "step-00000010",  # the best one
        "step-00000030",
        "step-00000040",
    ]


def test_copy_that_is_cut_is_no_checkpoint_and_goes_on(
    volume: Volume, remote: Path, gate: Gate
) -> None:
    """A copy that is cut off when the store goes away is no checkpoint in the mirror, and stays on
    the volume. A new process then completes it.
    """
    files = write_checkpoint(volume.root, 10, size_bytes=MANY_BYTES)
    gate.cut_after_bytes, gate.close_when_cut = WITHIN_THE_FIRST_PART, True
    with pytest.raises(StoreError):
        volume.push()
    gate.open()
    assert remote_manifests(volume.mirror) == {}
    assert step_being_copied(volume.run_dir) == 10  # it has to stay on the volume
    volume.push()
    assert files_of(remote, 10) == files


def test_connection_that_breaks_costs_no_copy(volume: Volume, remote: Path, gate: Gate) -> None:
    """A connection that breaks in the middle of an upload does not keep the copy from being
    completed.
    """
    files = write_checkpoint(volume.root, 10, size_bytes=MANY_BYTES)
    gate.cut_after_bytes = WITHIN_THE_FIRST_PART
    pusher = volume.pusher()
    try:
        pusher.push_next()
    except StoreError:
        assert pusher.push_next()
    assert gate.cut_after_bytes == 0  # the connection was cut
    assert files_of(remote, 10) == files


def test_file_that_was_copied_is_not_sent_again(volume: Volume, remote: Path) -> None:
    """When a copy is tried again, the files that have arrived are not sent again."""
    write_checkpoint(volume.root, 10)
    pusher = volume.pusher()
    sent: list[str] = []
    copy_in = pusher._mirror.copy_in  # pyright: ignore[reportPrivateUsage]

    def fail_at_the_last(source: Path, name: str) -> str:
        if source.name == "tensors.bin" and not sent.count("tensors.bin"):
            sent.append("tensors.bin")
            raise StoreError("away")
        sent.append(source.name)
        return copy_in(source, name)

    pusher._mirror.copy_in = fail_at_the_last  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(StoreError):
        pusher.push_next()
    assert pusher.push_next()
    assert sent == ["state.json", "layout.json", "tensors.bin", "tensors.bin"]


def test_copy_that_was_overtaken_is_removed(volume: Volume, remote: Path, gate: Gate) -> None:
    """A copy that was cut off is removed when a newer checkpoint is copied in its place. Otherwise
    half a copy would stay in the store for ever.
    """
    write_checkpoint(volume.root, 10, size_bytes=MANY_BYTES)
    gate.cut_after_bytes, gate.close_when_cut = WITHIN_THE_FIRST_PART, True
    with pytest.raises(StoreError):
        volume.push()
    gate.open()
    assert _names(remote) == ["step-00000010"]
    write_checkpoint(volume.root, 20)
    volume.push()
    assert _names(remote) == ["step-00000020"]


def test_removal_that_was_cut_is_finished_later(
    volume: Volume, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal that ended between the manifest and the other files is finished by a later copy.
    Here the process is killed at that point.
    """
    for step in (10, 20):
        write_checkpoint(volume.root, step)
        volume.push()
    write_checkpoint(volume.root, 30)
    with monkeypatch.context() as patch:
        patch.setattr(RemoteFolder, "remove_folder", _be_killed)
        with pytest.raises(KeyboardInterrupt):
            volume.push()
    assert _names(remote) == ["step-00000010", "step-00000020", "step-00000030"]
    write_checkpoint(volume.root, 40)
    volume.push()
    assert _names(remote) == ["step-00000030", "step-00000040"]


def test_best_checkpoint_half_copied_becomes_whole(
    volume: Volume, remote: Path, gate: Gate
) -> None:
    """The best checkpoint, whose copy was cut off, is completed although a newer one is there by
    now.
    """
    best = write_checkpoint(volume.root, 10, val_loss=1.0, size_bytes=MANY_BYTES)
    gate.cut_after_bytes, gate.close_when_cut = WITHIN_THE_FIRST_PART, True
    with pytest.raises(StoreError):
        volume.push()
    gate.open()
    newest = write_checkpoint(volume.root, 20, val_loss=2.0)
    volume.push()
    assert files_of(remote, 10) == best
    assert files_of(remote, 20) == newest


def test_copy_completed_by_another_process_stays(volume: Volume, remote: Path) -> None:
    """A checkpoint that another process has completed in the mirror stays. The pod of the earlier
    start may still be ending, and complete its copy meanwhile.
    """
    files = write_checkpoint(volume.root, 10)
    pusher = volume.pusher()
    assert pusher.push_next()
    write_checkpoint(volume.root, 5)
    write_checkpoint(remote, 5)
    write_checkpoint(volume.root, 20)
    assert pusher.push_next()
    assert files_of(remote, 10) == files
    assert sorted(remote_manifests(volume.mirror)) == [5, 10, 20]


def test_damaged_checkpoint_is_never_copied(volume: Volume, remote: Path) -> None:
    """A checkpoint that does not match its manifest is not copied, and a message says why."""
    write_checkpoint(volume.root, 10)
    good = write_checkpoint(volume.root, 20)
    path = volume.root / "step-00000020" / "tensors.bin"
    content = bytearray(good["tensors.bin"])
    content[7] ^= 1
    path.write_bytes(bytes(content))
    volume.push()
    assert sorted(remote_manifests(volume.mirror)) == [10]
    assert any("does not have the sha256 of manifest.json" in line for line in volume.said)


def test_step_that_was_saved_again_replaces_its_copy(volume: Volume, remote: Path) -> None:
    """When a step is saved again with other content, its copy in the mirror is replaced."""
    write_checkpoint(volume.root, 10)
    volume.push()
    again = write_checkpoint(volume.root, 10, seed=1)
    volume.push()
    assert files_of(remote, 10) == again


def test_copy_newer_than_the_volume_is_left_alone(volume: Volume, remote: Path) -> None:
    """A copy that is newer than all checkpoints of the volume stays, as after a run was set back
    because its newest checkpoint on the volume was damaged.
    """
    newer = write_checkpoint(volume.root, 50)
    volume.push()
    shutil.rmtree(volume.root / "step-00000050")
    for step in (20, 30, 40):
        write_checkpoint(volume.root, step)
        volume.push()
    assert files_of(remote, 50) == newer
    assert sorted(remote_manifests(volume.mirror)) == [30, 40, 50]


def test_better_copy_of_a_lost_volume_lets_copies_end(tmp_path: Path) -> None:
    """A mirror that still has a better checkpoint than the new volume keeps that one and the
    volume's best one. Otherwise the volume's best one would be removed there and copied again,
    without a pause and without an end.
    """
    url = f"file://{tmp_path}/mirror"
    lost = Volume(tmp_path / "lost" / "words", url)
    for step, loss in ((10, 1.0), (20, 2.0)):
        write_checkpoint(lost.root, step, val_loss=loss)
        lost.push()
    volume = Volume(tmp_path / "new" / "words", url)
    for step, loss in ((20, 2.0), (30, 3.0), (40, 4.0)):
        write_checkpoint(volume.root, step, val_loss=loss)
        pusher = volume.pusher()
        assert False in [pusher.push_next() for _ in range(4)]
    assert sorted(remote_manifests(volume.mirror)) == [10, 20, 30, 40]


def test_volume_that_was_displaced_copies_nothing(
    volume: Volume, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new volume may fill the mirror of a lost one. If the lost one comes back, or if both are
    runs of one name in two clusters, the first one ends and says why. Otherwise each would remove
    the other's copies, and none might be whole. Without the mark in the store it fills it again.
    """
    write_checkpoint(volume.root, 10)
    volume.push()
    monkeypatch.setenv("POD_NAME", "other-0")
    other = Volume(tmp_path / "other" / "words", str(volume.config.checkpoint.mirror))
    write_checkpoint(other.root, 20)
    other.push()
    write_checkpoint(volume.root, 30)
    pusher = volume.pusher()
    with pytest.raises(FatalError, match=r"another volume .* other-0.* run_name.*volume\.json"):
        pusher.push_next()
    write_checkpoint(other.root, 25)
    other.push()
    assert _names(remote) == ["step-00000020", "step-00000025"]
    (remote.parent / "volume.json").unlink()
    volume.push()
    assert "step-00000030" in _names(remote)


def test_unfinished_uploads_of_this_run_alone_are_removed(volume: Volume, bucket: str) -> None:
    """Unfinished uploads of this run are removed, and those of other runs are not. S3 keeps the
    parts of an upload for ever, and charges for them.
    """
    write_checkpoint(volume.root, 10)
    filesystem = cast(Any, volume.mirror)._filesystem
    ours = "some/prefix/words/checkpoints/step-00000010/tensors.bin"
    theirs = "some/prefix/words-2/checkpoints/step-00000010/tensors.bin"
    for key in (ours, theirs):
        filesystem.call_s3("create_multipart_upload", Bucket=bucket, Key=key)
    volume.push()
    left = filesystem.call_s3("list_multipart_uploads", Bucket=bucket)["Uploads"]
    assert [upload["Key"] for upload in left] == [theirs]


@pytest.mark.parametrize(
    "refusal",
    [PermissionError("Access Denied"), OSError(errno.ENOSYS, "not implemented")],
    ids=["right", "store"],
)
def test_uploads_nobody_may_list_hold_up_nothing(
    volume: Volume, remote: Path, monkeypatch: pytest.MonkeyPatch, refusal: OSError
) -> None:
    """Where the credentials may not list unfinished uploads, or the store cannot, checkpoints are
    copied all the same, and one line says what is left in the store.
    """
    files = write_checkpoint(volume.root, 10)
    call = s3fs.S3FileSystem.call_s3

    def refuse(filesystem: Any, method: str, *arguments: Any, **named: Any) -> Any:
        if method == "list_multipart_uploads":
            raise refusal
        return call(filesystem, method, *arguments, **named)

    monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", refuse)
    volume.push()
    assert files_of(remote, 10) == files
    assert len([line for line in volume.said if "s3:ListBucketMultipartUploads" in line]) == 1


@pytest.mark.parametrize("fault", ["no such bucket", "wrong password", "nobody answers"])
def test_store_that_refuses_is_named_with_the_reason(
    volume: Volume, gate: Gate, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the store names its URL and never the password."""
    write_checkpoint(volume.root, 10)
    if fault == "no such bucket":
        volume = Volume(volume.run_dir, "s3://no-such-bucket/prefix")
    elif fault == "wrong password":
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    else:
        gate.close()
    with pytest.raises(StoreError) as caught:
        volume.push()
    assert "s3://" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_url_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(FatalError, match=r"checkpoint\.mirror: 'nosuch://x' cannot be used"):
        RemoteFolder("nosuch://x")


def test_folder_of_another_file_system_serves_too(tmp_path: Path) -> None:
    """A folder (`file://`) can be the mirror."""
    volume = Volume(tmp_path / "words", f"file://{tmp_path}/mirror")
    files = write_checkpoint(volume.root, 10)
    volume.push()
    assert files_of(tmp_path / "mirror" / "words" / "checkpoints", 10) == files


def test_settings_and_metrics_follow_each_checkpoint(volume: Volume, remote: Path) -> None:
    """The run configuration and the metrics are in the mirror with each checkpoint."""
    write_checkpoint(volume.root, 10)
    (volume.run_dir / "run.yaml").write_text("run_name: words\n")
    for line in ("1\n", "2\n"):
        with (volume.run_dir / "metrics.jsonl").open("a") as file:
            file.write(line)
        write_checkpoint(volume.root, 10 * int(line))
        volume.push()
    run = remote.parent
    assert sorted(path.name for path in run.iterdir()) == [
        "checkpoints",
        "metrics.jsonl",
        "run.yaml",
        "volume.json",
    ]
    assert (run / "metrics.jsonl").read_text() == "1\n2\n"


def test_metrics_that_could_not_be_copied_are_copied_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics that could not be copied with their checkpoint are copied by the next process."""
    volume = Volume(tmp_path / "words", f"file://{tmp_path}/mirror")
    write_checkpoint(volume.root, 10)
    (volume.run_dir / "metrics.jsonl").write_text("1\n")
    pusher = volume.pusher()
    assert pusher.push_next()
    with monkeypatch.context() as patch:
        patch.setattr(RemoteFolder, "copy_in", _refuse)
        with pytest.raises(StoreError):
            pusher.push_next()
    again = volume.pusher()  # of a process that was started again
    assert not again.push_next()
    assert (tmp_path / "mirror" / "words" / "metrics.jsonl").read_text() == "1\n"
    (volume.run_dir / "metrics.jsonl").write_text("1\n2\n")
    assert not again.push_next()  # they follow the checkpoints, and no new one is there
    assert (tmp_path / "mirror" / "words" / "metrics.jsonl").read_text() == "1\n"


def _refuse(*_: object) -> str:
    raise StoreError("away")


def _be_killed(*_: object) -> None:
    raise KeyboardInterrupt


def _names(folder: Path) -> list[str]:
    """Return the names in the folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


def test_defaults_have_no_mirror() -> None:
    assert CheckpointConfig().mirror is None


def test_copies_keep_to_the_bandwidth_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies take the time that `checkpoint.mirror_bytes_per_second` demands, because training and
    others need the network as well.
    """
    limit = 2**20
    settings = {"mirror_bytes_per_second": limit}
    volume = Volume(tmp_path / "words", f"file://{tmp_path}/mirror", **settings)
    write_checkpoint(volume.root, 10, size_bytes=MANY_BYTES)
    clock = Clock()
    monkeypatch.setattr("trainer.mirror.remote_folder.time", clock)
    volume.push()
    copied = sum(path.stat().st_size for path in (tmp_path / "mirror").rglob("*.bin"))
    assert copied >= MANY_BYTES
    assert copied / limit <= clock.now < 1.01 * copied / limit
