"""The file by which a node shows that it can write on the volume, in a real folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainer.volume import files
from trainer.volume.files import OTHER_CONTENT, WriteError, look_for, proof_file, write_proof


def never() -> bool:
    return False


def test_written_file_is_seen_and_removed(tmp_path: Path) -> None:
    """A node finds, by its token, the file that another node has written, and nothing is left after
    the file is removed.
    """
    folder = tmp_path / "runs" / "r"
    written = write_proof(folder, 3, "abcd")
    assert written.write_seconds >= 0
    assert written.rename_seconds >= 0
    assert look_for(folder, {3: "abcd"}, never) == {}
    assert [path.name for path in folder.iterdir()] == [".volume-proof-00003-abcd"]
    files.remove_proof(folder, 3, "abcd")
    files.remove_proof(folder, 3, "abcd")  # it may be gone already
    assert not list(folder.iterdir())


def test_file_of_earlier_attempt_counts_for_nothing(tmp_path: Path) -> None:
    """A file of an earlier attempt does not count: both its name and its content must have the
    token of this attempt.
    """
    write_proof(tmp_path, 0, "old")
    assert look_for(tmp_path, {0: "new"}, never) == {0: errno.ENOENT}
    proof_file(tmp_path, 0, "old").rename(proof_file(tmp_path, 0, "new"))
    assert look_for(tmp_path, {0: "new"}, never) == {0: OTHER_CONTENT}


def test_file_that_appears_late_is_seen(tmp_path: Path) -> None:
    """A file that the file server shows late is looked for again until the limit."""
    looks = list[int]()

    def goes_on() -> bool:
        looks.append(len(looks))
        if len(looks) == 3:
            write_proof(tmp_path, 1, "b")
        return len(looks) < 5

    write_proof(tmp_path, 0, "a")
    assert look_for(tmp_path, {0: "a", 1: "b"}, goes_on) == {}
    assert len(looks) == 3


def test_failed_act_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation that the volume refuses is named in the error, and no file is left. Each
    operation is replaced in turn by a stand-in that fails.
    """

    def refuse(*_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    for place, name, act in (
        (os, "fsync", "making the file durable"),
        (Path, "rename", "renaming"),
        (files, "fsync_directory", "making the folder durable"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, refuse)
            with pytest.raises(WriteError, match=act) as raised:
                write_proof(tmp_path, 0, "a")
        assert raised.value.number == errno.EDQUOT
        assert not list(tmp_path.iterdir())


def test_only_own_leftovers_are_removed(tmp_path: Path) -> None:
    """A node removes the files that its own killed attempts have left, and no other node's."""
    for node, token in ((1, "dead"), (1, "mine"), (2, "other")):
        write_proof(tmp_path, node, token)
    proof_file(tmp_path, 1, "killed").with_suffix(".tmp").touch()
    files.remove_others(tmp_path, 1, "mine")
    left = {proof_file(tmp_path, 1, "mine"), proof_file(tmp_path, 2, "other")}
    assert set(tmp_path.iterdir()) == left
    (tmp_path / "done.json").touch()
    files.remove_all(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["done.json"]
