"""The list of files of a bundle, by which damaged, missing and foreign files are found."""

import hashlib
from pathlib import Path

import pytest

from infra.airgap.__main__ import main
from infra.airgap.manifest import (
    CHECKSUM,
    MANIFEST,
    Entry,
    Manifest,
    damage,
    is_plain,
    missing_files,
    read_manifest,
    write_manifest,
)

CONTENT = {"k3s/k3s": b"binary", "dataset/a.txt": b"text"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a small bundle."""
    entries: list[Entry] = []
    for name, content in CONTENT.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        entries.append(Entry(name, name.split("/")[0], "v1", len(content), sha256, "here"))
    write_manifest(tmp_path, Manifest("amd64", ("tools",), tuple(entries)))
    return tmp_path


def test_manifest_comes_back_and_does_not_depend_on_the_order(folder: Path) -> None:
    """The list is read as it was written, does not depend on the order of the files, and has its
    checksum beside it.
    """
    manifest = read_manifest(folder)
    turned = Manifest("amd64", ("tools",), tuple(reversed(manifest.files)))
    assert turned.to_json() == manifest.to_json() == (folder / MANIFEST).read_text()
    assert (folder / CHECKSUM).read_text() == f"{manifest.sha256}  manifest.json\n"
    assert manifest.sha256 == hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    assert missing_files(folder, manifest) == damage(folder, manifest.files) == []


def test_damage_is_named_with_both_checksums(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "k3s/k3s").write_bytes(b"binarz")
    good, bad = (hashlib.sha256(text).hexdigest() for text in (b"binary", b"binarz"))
    assert damage(folder, read_manifest(folder).files) == [f"k3s/k3s: sha256 is {bad}, not {good}"]
    assert main(["verify", str(folder)]) == 1
    assert bad in capsys.readouterr().err


def test_missing_and_cut_off_files_are_seen_without_reading(folder: Path) -> None:
    """Missing and cut-off files are found by their sizes, without reading them."""
    (folder / "k3s/k3s").write_bytes(b"bin")
    (folder / "dataset/a.txt").unlink()
    assert sorted(missing_files(folder, read_manifest(folder))) == [
        "dataset/a.txt: No such file or directory",
        "k3s/k3s: 3 bytes, not 6",
    ]
    assert main(["verify", str(folder)]) == 1


def test_changed_manifest_is_refused(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace("v1", "v2"))
    with pytest.raises(ValueError, match=r"sha256 is \w+, not \w+ as manifest.json.sha256 says"):
        read_manifest(folder)


def test_manifest_other_than_the_noted_one_is_refused(folder: Path) -> None:
    """A list whose checksum is not the one that was noted is refused."""
    with pytest.raises(ValueError, match="as expected"):
        read_manifest(folder, "0" * 64)


def test_folder_without_a_finished_bundle_is_refused(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    with pytest.raises(ValueError, match="is not a complete bundle"):
        read_manifest(folder)


@pytest.mark.parametrize("name", ["../k3s", "/etc/passwd", "a/../../b", "", "a b", "a\nb"])
def test_names_that_lead_elsewhere_are_refused(name: str, folder: Path) -> None:
    """A list that names a file outside the bundle is refused."""
    assert not is_plain(name)
    write_manifest(folder, Manifest("amd64", (), (Entry(name, "k3s", "v1", 0, "0" * 64, ""),)))
    with pytest.raises(ValueError, match="is not a path inside the bundle"):
        read_manifest(folder)
