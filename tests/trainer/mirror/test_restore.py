"""An empty volume gets the newest good checkpoint of the mirror."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.gate import Gate
from tests.trainer.mirror.checkpoints import files_of, write_checkpoint
from tests.trainer.mirror.volume import Volume
from trainer.launch.exit_codes import FatalError, RetryableError
from trainer.mirror.restore import restore


def fetch(volume: Volume, root: Path) -> int | None:
    """Make the folder `root`, restore into it from the volume's mirror, and return the step."""
    root.mkdir(parents=True)
    return restore(root, volume.mirror, volume.said.append)


def test_newest_checkpoint_comes_back_bitwise(mirrored: Volume, tmp_path: Path) -> None:
    root = tmp_path / "second"
    assert fetch(mirrored, root) == 20
    assert files_of(root, 20) == files_of(mirrored.root, 20)
    assert [path.name for path in root.iterdir()] == ["step-00000020"]


def test_copy_that_was_changed_is_skipped_and_named(
    mirrored: Volume, tmp_path: Path, objects: Path
) -> None:
    """A copy whose content has changed is skipped with a message, and the one before it is
    restored.
    """
    path = objects / "words" / "checkpoints" / "step-00000020" / "tensors.bin"
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    with path.open("r+b") as file:  # in place, as a disk's fault would be
        file.write(content)
    root = tmp_path / "second"
    assert fetch(mirrored, root) == 10
    assert files_of(root, 10) == files_of(mirrored.root, 10)
    assert any("step 20 of the mirror is skipped: " in line for line in mirrored.said)


def test_copy_that_lacks_a_file_is_skipped(mirrored: Volume, tmp_path: Path, objects: Path) -> None:
    """A copy in which a file is missing is skipped, and the one before it is restored. A rule of
    the bucket, or somebody, may have removed the file, and the run would otherwise never start
    again.
    """
    (objects / "words" / "checkpoints" / "step-00000020" / "tensors.bin").unlink()
    root = tmp_path / "second"
    assert fetch(mirrored, root) == 10
    (skipped,) = [line for line in mirrored.said if "is skipped" in line]
    assert skipped.startswith("step 20 of the mirror is skipped: ")
    assert skipped.endswith("tensors.bin is missing in the store")


def test_what_a_killed_process_of_the_same_number_has_left_is_replaced(tmp_path: Path) -> None:
    """A restore replaces what a killed process with the same pid has left. In a container `python
    -m trainer restore` is process 1 each time, and could otherwise never be tried again after a
    kill.
    """
    volume = Volume(tmp_path / "first", f"file://{tmp_path}/mirror")
    write_checkpoint(volume.root, 20)
    (volume.run_dir / "metrics.jsonl").write_text('{"step": 20}\n')
    volume.push()
    root = tmp_path / "second" / "checkpoints"
    left = root / f".tmp-step-00000020-{os.getpid()}"
    left.mkdir(parents=True)
    (left / "tensors.bin").write_bytes(b"half")
    (root.parent / f".metrics.jsonl.mirror-{os.getpid()}").write_bytes(b"half")
    assert restore(root, volume.mirror, volume.said.append) == 20
    assert files_of(root, 20) == files_of(volume.root, 20)
    assert [path.name for path in root.iterdir()] == ["step-00000020"]
    assert (root.parent / "metrics.jsonl").read_text() == '{"step": 20}\n'


def test_mirror_without_a_good_copy_starts_no_run(
    mirrored: Volume, tmp_path: Path, objects: Path
) -> None:
    """A run does not start if the mirror has copies, but none that can be used."""
    for path in (objects / "words" / "checkpoints").glob("*/tensors.bin"):
        path.write_bytes(b"")
    with pytest.raises(FatalError, match="none of them can be used"):
        fetch(mirrored, tmp_path / "second")


def test_metrics_come_first_and_replace_none(mirrored: Volume, tmp_path: Path) -> None:
    """The metrics are restored before the checkpoint, and replace none that are there. A run that
    goes on without them would write its few new ones over those of the mirror.
    """
    mirrored.mirror.parent().write("metrics.jsonl", b"1\n")
    said: list[tuple[str, bool]] = []

    def say(text: str) -> None:
        said.append((text, (tmp_path / "other" / "metrics.jsonl").exists()))

    root = tmp_path / "other" / "checkpoints"
    root.mkdir(parents=True)
    assert restore(root, mirrored.mirror, say) == 20
    assert [there for _, there in said] == [True]
    assert (root.parent / "metrics.jsonl").read_bytes() == b"1\n"
    assert sorted(path.name for path in root.parent.iterdir()) == ["checkpoints", "metrics.jsonl"]
    (root.parent / "metrics.jsonl").write_bytes(b"1\n2\n")
    (root.parent / "again").mkdir()
    restore(root.parent / "again", mirrored.mirror, say)
    assert (root.parent / "metrics.jsonl").read_bytes() == b"1\n2\n"


def test_tokenizer_comes_and_replaces_none(mirrored: Volume, tmp_path: Path) -> None:
    """The tokenizer's file is restored, and replaces none that is there. Without that file nobody
    could sample from the restored run.
    """
    mirrored.mirror.parent().write("tokenizer.json", b"{}")
    root = tmp_path / "other" / "checkpoints"
    assert fetch(mirrored, root) == 20
    assert (root.parent / "tokenizer.json").read_bytes() == b"{}"
    (root.parent / "tokenizer.json").write_bytes(b"[]")
    assert fetch(mirrored, root.parent / "again") == 20
    assert (root.parent / "tokenizer.json").read_bytes() == b"[]"


def test_mirror_that_is_away_starts_no_run(mirrored: Volume, tmp_path: Path, gate: Gate) -> None:
    """A run does not start while its mirror cannot be reached. Its checkpoints may be there, so it
    must not begin at step 0.
    """
    gate.close()
    with pytest.raises(RetryableError, match="the mirror could not be asked"):
        fetch(mirrored, tmp_path / "second")
    assert list((tmp_path / "second").iterdir()) == []


def test_empty_mirror_lets_a_run_begin(tmp_path: Path, bucket: str) -> None:
    """A run whose mirror is empty begins at step 0."""
    assert fetch(Volume(tmp_path / "words", f"s3://{bucket}"), tmp_path / "second") is None


def test_manifest_cannot_write_elsewhere(mirrored: Volume, tmp_path: Path) -> None:
    """A manifest that names a file outside of the checkpoint is refused. Otherwise somebody else
    who can write to the bucket could write other files of the volume.
    """
    for step in (10, 20):
        manifest = files_of(mirrored.root, step)["manifest.json"]
        manifest = manifest.replace(b"tensors.bin", b"../../escaped")
        mirrored.mirror.write(f"step-{step:08d}/manifest.json", manifest)
    with pytest.raises(FatalError, match="not a plain file name"):
        fetch(mirrored, tmp_path / "second")
    assert not (tmp_path / "escaped").exists()
