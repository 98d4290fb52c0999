"""A run that starts over takes the checkpoints of the ended training out of its mirror."""

from pathlib import Path

import pytest

from tests.trainer.mirror.checkpoints import files_of, write_checkpoint
from tests.trainer.mirror.volume import Volume
from trainer.mirror.contents import remote_manifests
from trainer.mirror.remote_folder import RemoteFolder, StoreError
from trainer.mirror.start_over import has_started_over, note_start_over


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    """Return a volume whose checkpoints 40 and 50 are in the mirror, and whose run starts over."""
    volume = Volume(tmp_path / "words", f"file://{tmp_path}/mirror")
    for step in (40, 50):
        write_checkpoint(volume.root, step, val_loss=0.1)
        volume.push()
    for step in (40, 50):
        folder = volume.root / f"step-{step:08d}"
        folder.rename(volume.root / f"damaged-{folder.name}")
    note_start_over(volume.run_dir)
    return volume


def test_ended_training_is_no_longer_offered(volume: Volume) -> None:
    """The copies of before count no more even before the first checkpoint of the new training. The
    note on the volume goes when that is done.
    """
    volume.push()
    assert remote_manifests(volume.mirror) == {}
    assert not has_started_over(volume.run_dir)


def test_new_training_fills_the_mirror_by_its_own_rules(volume: Volume, tmp_path: Path) -> None:
    """The best loss of before does not count for what the mirror keeps, and the new training
    replaces the copies of before when it comes to their steps.
    """
    for step in (10, 20, 30, 40):
        write_checkpoint(volume.root, step, val_loss=10.0 if step > 10 else 9.0, seed=1)
        volume.push()
        assert max(remote_manifests(volume.mirror)) == step
    files = write_checkpoint(volume.root, 60, val_loss=10.0, seed=1)
    volume.push()
    assert sorted(remote_manifests(volume.mirror)) == [10, 40, 60]
    remote = tmp_path / "mirror" / "words" / "checkpoints"
    assert files_of(remote, 60) == files
    assert not (remote / "step-00000050").exists()


def test_ended_copies_keep_their_manifest_under_another_name(
    volume: Volume, tmp_path: Path
) -> None:
    """The copies of before stay in the store, as those on the volume do."""
    remote = tmp_path / "mirror" / "words" / "checkpoints"
    before = files_of(remote, 50)
    volume.push()
    after = files_of(remote, 50)
    assert after.pop("ended-manifest.json") == before.pop("manifest.json")
    assert after == before


def test_store_that_is_away_only_delays_it(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store does not answer nothing is copied, and the note stays on the volume."""
    write_checkpoint(volume.root, 10, seed=1)
    remove, calls = RemoteFolder.remove, list[str]()

    def fail_at_second(self: RemoteFolder, name: str) -> None:
        calls.append(name)
        if len(calls) == 2:
            raise StoreError("away")
        remove(self, name)

    monkeypatch.setattr(RemoteFolder, "remove", fail_at_second)
    pusher = volume.pusher()
    with pytest.raises(StoreError):
        pusher.push_next()
    assert has_started_over(volume.run_dir)
    assert len(remote_manifests(volume.mirror)) == 1
    while pusher.push_next():
        pass
    assert sorted(remote_manifests(volume.mirror)) == [10]
    assert not has_started_over(volume.run_dir)


def test_checkpoint_of_the_new_training_stays(volume: Volume) -> None:
    """A checkpoint that is on the volume now belongs to the new training, even if the process was
    killed before it had removed the note.
    """
    write_checkpoint(volume.root, 10, seed=1)
    volume.push()
    note_start_over(volume.run_dir)
    volume.push()
    assert sorted(remote_manifests(volume.mirror)) == [10]
