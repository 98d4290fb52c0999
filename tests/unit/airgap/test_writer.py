"""The writer of a bundle, when a packing is killed."""

from pathlib import Path

import pytest

from infra.airgap.writer import BundleWriter


def image(scratch: Path) -> str:
    """Fill a folder with an image of two files."""
    (scratch / "images").mkdir()
    for name in ("one", "two"):
        (scratch / "images" / name).write_text(name)
    return "here"


@pytest.mark.parametrize(("wanted", "left"), [("old", ["one", "two"]), ("", [])])
def test_files_of_a_killed_packing_do_not_stay_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, left: list[str]
) -> None:
    """If a packing is killed while it moves files to their place, the next one completes them. If
    they are not wanted any more, as those of an older version, the next one removes them.
    """
    real, moved = Path.replace, list[Path]()

    def killed(path: Path, target: Path) -> Path:
        if moved:
            raise KeyboardInterrupt
        moved.append(target)
        return real(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            BundleWriter(tmp_path, "amd64", print).add("image", "old", image)
    assert len([*tmp_path.glob("images/*")]) == 1
    again = BundleWriter(tmp_path, "amd64", print)
    if wanted:
        again.add("image", wanted, image)
    again.finish(())
    assert sorted(path.name for path in tmp_path.glob("images/*")) == left
