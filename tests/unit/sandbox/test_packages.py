"""Packages that the sandbox unpacks without installing them."""

from pathlib import Path

import pytest

from sandbox.components import CNI_FOLDERS
from sandbox.packages import CLUSTER_PACKAGES, missing_packages, unpack_packages


def put_program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for the test's own apt-get and dpkg, which come first in PATH. A real archive
    would need a mirror.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    put_program(folder, "dpkg", 'mkdir -p "$3/usr" && cp "$2" "$3/usr/"')
    return folder


def test_packages_are_unpacked_without_their_archives(programs: Path, tmp_path: Path) -> None:
    download = 'case "$*" in *download*) for last in "$@"; do :; done; touch "$last.deb";; esac'
    put_program(programs, "apt-get", download)
    folder = tmp_path / "files"
    folder.mkdir()
    unpack_packages(folder, ["one", "two"])
    assert [path.name for path in folder.iterdir()] == ["usr"]
    assert [path.name for path in (folder / "usr").iterdir()] == ["two.deb"]


def test_package_that_is_not_there_is_named_with_apts_words(programs: Path, tmp_path: Path) -> None:
    refuse = 'case "$*" in *download*) echo "E: Unable to locate package $5" >&2; exit 100;; esac'
    put_program(programs, "apt-get", refuse)
    folder = tmp_path / "files"
    folder.mkdir()
    with pytest.raises(RuntimeError, match="Unable to locate package one"):
        unpack_packages(folder, ["one"])


def test_file_may_be_in_several_places(tmp_path: Path) -> None:
    """A file counts as present if one of its possible folders has it. Otherwise `setup` would ask
    for Debian's package of CNI plugins, although the sandbox accepts them in either folder.
    """
    wanted = {f"{tmp_path / 'one'}:{tmp_path / 'two'}": "plugins"}
    assert missing_packages(wanted) == ["plugins"]
    (tmp_path / "two").touch()
    assert missing_packages(wanted) == []
    places = ":".join(str(folder / "bridge") for folder in CNI_FOLDERS)
    assert CLUSTER_PACKAGES[places] == "containernetworking-plugins"
