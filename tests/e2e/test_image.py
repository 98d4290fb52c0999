"""The image as it is in containerd: who it runs as, and what is not in it."""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.imaging.containerd import Containerd
from infra.imaging.oci import ANNOTATION, image_annotations
from infra.imaging.plan import plan_image
from sandbox.venvs import PROJECT
from tests.e2e.lab import Lab

# with versions and target names as Debian adds them: gcc-12, x86_64-linux-gnu-ld.bfd
COMPILERS = re.compile(
    r"(.*-linux-gnu-)?(cc|c\+\+|c[89]9|gcc|g\+\+|cpp|clang|clang\+\+|tcc|ld|as|make|cmake|ninja|meson"
    r"|rustc|cargo|go|nvcc|uv|dpkg-buildpackage)(-\d.*|\.bfd|\.gold)?"
)
Files = Mapping[str, os.stat_result]


@pytest.fixture(scope="module")
def reference(lab: Lab) -> str:
    """Of the image that `lab` has imported."""
    assert lab
    settings = yaml.safe_load((PROJECT / "Pulumi.sandbox.yaml").read_text())["config"]
    project = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text())["config"]
    repository = project["imageRepository"]["default"]
    return plan_image(PROJECT, repository, settings["disttrain:imageBase"], None).reference


@pytest.fixture(scope="module")
def files(
    lab: Lab, reference: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, os.stat_result]]:
    """What lies in the image, by its path from the image's root."""
    target = tmp_path_factory.mktemp("image")
    lab.ctr("images", "mount", reference, str(target))
    try:
        yield {
            str(Path(folder, name).relative_to(target)): Path(folder, name).lstat()
            for folder, folders, names in os.walk(target)
            for name in (*folders, *names)
        }
    finally:
        lab.ctr("images", "unmount", "--rm", str(target))


def test_image_runs_as_user_1000_and_names_its_origin(lab: Lab, reference: str) -> None:
    image = Containerd(["ctr"], str(lab.cluster.containerd_address)).complete_image(reference)
    assert image
    settings: dict[str, Any] = json.loads(image.config.read())["config"]
    assert settings["User"] == "1000:1000"
    tag = reference.rpartition(":")[2]
    for found in (settings["Labels"], image_annotations(image)):
        assert found[f"{ANNOTATION}.version"] == tag
        assert found[f"{ANNOTATION}.revision"] == tag.rpartition("-")[2]
        assert found[f"{ANNOTATION}.base.digest"].startswith("sha256:")


def test_no_compiler_is_in_the_image(files: Files) -> None:
    programs = [path for path in files if re.search(r"(^|/)s?bin/[^/]+$", path)]
    assert "opt/venv/bin/python" in programs
    assert [p for p in programs if COMPILERS.fullmatch(p.rpartition("/")[2])] == []


def test_user_1000_can_write_below_data_and_in_the_folders_for_all(files: Files) -> None:
    assert {path for path, found in files.items() if found.st_uid or found.st_gid == 1000} == {
        "data"
    }
    for_all = {
        path: found
        for path, found in files.items()
        if found.st_mode & stat.S_IWOTH and not stat.S_ISLNK(found.st_mode)
    }
    folders = {path for path, found in for_all.items() if stat.S_ISDIR(found.st_mode)}
    assert {path for path in folders if not for_all[path].st_mode & stat.S_ISVTX} == set()
    ours = {path for path in for_all if path.startswith(("opt/", "app/"))}
    assert ours <= {"opt/venv/.lock"}  # uv's, empty


def test_programs_that_change_the_user_are_the_bases_own(files: Files) -> None:
    changing = {
        path
        for path, found in files.items()
        if stat.S_ISREG(found.st_mode) and found.st_mode & (stat.S_ISUID | stat.S_ISGID)
    }
    assert {path for path in changing if not path.startswith(("usr/bin/", "usr/sbin/"))} == set()


def test_metadata_for_inventories_is_kept(files: Files) -> None:
    assert "var/lib/dpkg/status" in files
    pinned = (PROJECT / "trainer" / "requirements.txt").read_text()
    site = "opt/venv/lib/python3.11/site-packages"
    for name, version in re.findall(r"^([a-z]+)==([\d.]+)", pinned, re.MULTILINE):
        assert any(
            path.startswith(f"{site}/{name}-{version}") and path.endswith(".dist-info/METADATA")
            for path in files
        ), name
