"""The image as it is in containerd: its user, what is in it and what is not."""

import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.image.containerd import Containerd
from infra.image.oci import ANNOTATION, image_annotations
from sandbox.venvs import PROJECT
from tests.e2e.conftest import build_image, planned_image
from tests.e2e.lab import Lab

# With the versions and target names that Debian adds: gcc-12, x86_64-linux-gnu-ld.bfd.
COMPILERS = re.compile(
    r"(.*-linux-gnu-)?(cc|c\+\+|c[89]9|gcc|g\+\+|cpp|clang|clang\+\+|tcc|ld|as|make|cmake|ninja|meson"
    r"|rustc|cargo|go|nvcc|uv|dpkg-buildpackage)(-\d.*|\.bfd|\.gold)?"
)
Files = Mapping[str, os.stat_result]


@pytest.fixture(scope="module")
def reference(lab: Lab) -> str:
    """Return the image's name.

    The image is imported again, because a stack that was destroyed may have removed it.
    """
    build_image(lab)
    return planned_image().reference


@pytest.fixture(scope="module")
def root(lab: Lab, reference: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the image's root folder; what the tests write there is gone afterwards."""
    target = tmp_path_factory.mktemp("image")
    lab.ctr("images", "mount", "--rw", reference, str(target))
    try:
        yield target
    finally:
        lab.ctr("images", "unmount", "--rm", str(target))


@pytest.fixture(scope="module")
def files(root: Path) -> dict[str, os.stat_result]:
    return files_below(root)


def files_below(root: Path) -> dict[str, os.stat_result]:
    """Return what is in an image, by its path from the image's root."""
    return {
        str(Path(folder, name).relative_to(root)): Path(folder, name).lstat()
        for folder, folders, names in os.walk(root)
        for name in (*folders, *names)
    }


def test_image_runs_as_user_1000_and_names_its_origin(lab: Lab, reference: str) -> None:
    """The image runs as user 1000, and its labels name the version, the revision and the base
    image.
    """
    image = Containerd(["ctr"], str(lab.cluster.containerd_address)).complete_image(reference)
    assert image
    settings: dict[str, Any] = json.loads(image.config.read())["config"]
    assert settings["User"] == "1000:1000"
    tag = reference.rpartition(":")[2]
    for found in (settings["Labels"], image_annotations(image)):
        assert found[f"{ANNOTATION}.version"] == tag
        assert found[f"{ANNOTATION}.revision"] == tag.rpartition("-")[2]
        assert found[f"{ANNOTATION}.base.digest"].startswith("sha256:")


def test_the_one_compiler_is_the_small_one(files: Files) -> None:
    """The only compiler in the image is tcc, which torch.compile needs for its C modules.

    Nothing that builds packages is in the image.
    """
    programs = [path for path in files if re.search(r"(^|/)s?bin/[^/]+$", path)]
    assert "opt/venv/bin/python" in programs
    compilers = {p for p in programs if COMPILERS.fullmatch(p.rpartition("/")[2])}
    assert compilers == {"usr/bin/cc", "usr/bin/tcc"}


def test_the_image_can_compile_for_a_gpu(reference: str, root: Path, lab: Lab) -> None:
    """In the image, torch.compile can work for GPUs, as far as this can be seen without one.

    Without a C compiler it would be off on GPU machines. triton_without_gpu.py says what is tried.
    """
    image = Containerd(["ctr"], str(lab.cluster.containerd_address)).complete_image(reference)
    assert image
    settings: dict[str, Any] = json.loads(image.config.read())["config"]
    program = root / "tmp" / "triton_without_gpu.py"
    program.write_text((Path(__file__).parent / program.name).read_text())
    program.chmod(0o644)
    done = subprocess.run(
        ["chroot", "--userspec=1000:1000", str(root), "python", f"/tmp/{program.name}"],
        env=dict(line.split("=", 1) for line in settings["Env"]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "compiler cc: two modules in" in done.stdout


def test_user_1000_can_write_below_data_and_in_the_folders_for_all(files: Files) -> None:
    """User 1000 owns only `data`, and other folders that everybody may write to have the sticky
    bit.
    """
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
    assert ours <= {"opt/venv/.lock"}  # an empty file of uv


@pytest.fixture
def base_root() -> Iterator[Path]:
    """Yield the root folder of the base image, which buildah has on this machine."""

    def buildah(*words: str) -> str:
        done = subprocess.run(["buildah", *words], stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.strip()

    container = buildah("from", "--pull-never", planned_image().base_image)
    try:
        yield Path(buildah("mount", container))
    finally:
        buildah("rm", container)


def changing_the_user(files: Files) -> set[str]:
    """Return the programs that run as their own user or group, whoever starts them."""
    bits = stat.S_ISUID | stat.S_ISGID
    return {p for p, found in files.items() if stat.S_ISREG(found.st_mode) and found.st_mode & bits}


def test_programs_that_change_the_user_are_the_bases_own(files: Files, base_root: Path) -> None:
    """The image has no program with the setuid or setgid bit besides those of its base image."""
    base = files_below(base_root)
    assert "usr/bin/passwd" in changing_the_user(base)
    assert changing_the_user(files) <= changing_the_user(base)


def test_metadata_for_inventories_is_kept(files: Files) -> None:
    """The image keeps the metadata of its packages, which inventories of its contents need.

    A package's folder of metadata has its name, with `_` for `-`, and its version. PyTorch's
    version there may end in `+` and the kind of its build.
    """
    assert "var/lib/dpkg/status" in files
    lines = (PROJECT / "trainer" / "requirements.txt").read_text().splitlines()
    pins = [line.split()[0].split("==") for line in lines if not line.startswith("#")]
    pinned = {f"{name.replace('-', '_')}-{version}" for name, version in pins}
    site = "opt/venv/lib/python3.11/site-packages"
    known = re.compile(rf"{site}/(.+-[\d.]+)(\+\w+)?\.dist-info/METADATA")
    kept = {found[1] for path in files if (found := known.fullmatch(path))}
    assert {name for name, _ in pins} >= {"torch", "huggingface-hub", "s3fs"}
    assert sorted(pinned - kept) == []
