"""The cache folder of the sandbox."""

from pathlib import Path

import pytest

from sandbox.cache import cached_folder, content_key, remove_tree


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DISTTRAIN_CACHE", str(tmp_path / "cache"))


def test_content_key_changes_with_any_file_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("1")
    before = content_key(folder)
    (folder / "a").write_text("2")
    changed = content_key(folder)
    (folder / "a").rename(folder / "b")
    assert len({before, changed, content_key(folder)}) == 3


def test_cached_folder_is_made_once() -> None:
    made: list[Path] = []
    first = cached_folder("kind", "key", made.append)
    assert cached_folder("kind", "key", made.append) == first
    assert made == [first]


def test_interrupted_folder_is_made_anew() -> None:
    def interrupted(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_folder("kind", "key", interrupted)
    folder = cached_folder("kind", "key", lambda path: (path / "whole").touch())
    assert sorted(path.name for path in folder.iterdir()) == [".complete", "whole"]


def test_remove_tree_removes_read_only_folders(tmp_path: Path) -> None:
    inner = tmp_path / "tree" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    inner.chmod(0o555)
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
