"""A bundle that is packed from a mirror, and a host without internet that gets k3s from it."""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.airgap.manifest import MANIFEST, read_manifest
from infra.platform.airgap_files import STAGE
from tests.node.bundles import IMAGES, WITHOUT, packed, settings
from tests.node.lab import UP, VERSION, Lab, failure, rewritten, wait_for
from tests.node.outbound import watched
from tests.node.releases import GITHUB
from tests.node.rootfs import PASSWORD

# The names of k3s' binary and of the archive of its images, for this machine's architecture.
K3S_FILES = [Path(each.url).name for each in GITHUB.files(VERSION)[:2]]


@pytest.fixture(scope="module")
def bundle(whole_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a packed bundle, which the tests share and must not change."""
    folder = tmp_path_factory.mktemp("bundle")
    packed(whole_lab, folder)
    return folder


@contextmanager
def mirror_gone(lab: Lab) -> Iterator[None]:
    """End the mirror for the block."""
    lab.mirror.close()
    try:
        yield
    finally:
        lab.mirror.start()


def test_second_pack_fetches_nothing_and_writes_the_same_manifest(
    lab: Lab, bundle: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(bundle, folder)
    before = (folder / MANIFEST).read_bytes()
    asked = lab.mirror.requests
    said = packed(lab, folder)
    assert lab.mirror.requests == asked
    assert (folder / MANIFEST).read_bytes() == before
    assert f"sha256 of manifest.json: {hashlib.sha256(before).hexdigest()}" in said


def test_pack_that_the_mirror_broke_off_is_finished_by_the_next(
    lab: Lab, bundle: Path, tmp_path: Path
) -> None:
    before = len(lab.mirror.requests)  # The fixture `bundle` has made some of them.
    lab.mirror.slow(True)
    process = lab.pack(tmp_path, *WITHOUT, **settings(lab))

    def is_asked_for_k3s() -> bool:
        return any(request.endswith("/k3s") for request in lab.mirror.requests[before:])

    wait_for("the download", is_asked_for_k3s)
    with mirror_gone(lab):
        said, _ = process.communicate()
    assert process.returncode == 1
    assert "/k3s: " in said
    assert "(3 attempts)" in said
    assert not (tmp_path / MANIFEST).exists()
    lab.mirror.slow(False)
    asked = len(lab.mirror.requests)
    packed(lab, tmp_path)
    # The first pack has fetched the lists of checksums.
    again = [Path(request).name for request in lab.mirror.requests[asked:]]
    assert sorted(again) == sorted(["install.sh", *K3S_FILES, "text.txt"])
    assert (tmp_path / MANIFEST).read_bytes() == (bundle / MANIFEST).read_bytes()


def test_host_without_a_way_out_gets_k3s_from_the_bundle_and_nobody_tries_one(
    lab: Lab, bundle: Path, tmp_path: Path
) -> None:
    stack = lab.stack("admin", sudoPassword=PASSWORD, bundle=str(bundle), **settings(lab))
    asked = lab.mirror.requests
    with mirror_gone(lab), watched(lab.host, stack, tmp_path) as outbound:
        output = stack.up()
        assert (outbound.on_host(), outbound.of_pulumi()) == (0, 0), output
        outbound.try_both()
        assert outbound.on_host() > 0
        assert outbound.of_pulumi() > 0
    assert UP in output
    assert lab.mirror.requests == asked
    assert lab.host.shell(f"stat -c '%U %a' {STAGE}").split() == ["root", "700"]
    found = lab.host.shell(f"cd {STAGE}; find . -type f | sort").split()
    wanted = ["k3s/install.sh", *(f"k3s/{name}" for name in K3S_FILES)]
    assert found == sorted(f"./{name}" for name in wanted)
    there = lab.host.shell(f"cd {IMAGES}; sha256sum *").split()
    (images,) = read_manifest(bundle).of("k3s-images")
    assert there == [images.sha256, f"disttrain-{images.sha256[:16]}-{Path(images.name).name}"]
    before = lab.host.files()
    stack.up()
    assert rewritten(before, lab.host.files()) == []
    lab.host.shell("echo damage >/usr/local/bin/k3s")
    stack.set("k3sForce", "true")  # This change lets the script run again.
    assert f"taking k3s {VERSION}" in stack.up()
    assert lab.mirror.requests == asked
    stack.destroy()
    assert lab.differences() == []


def test_flipped_bytes_stop_before_anything_is_written(
    lab: Lab, bundle: Path, tmp_path: Path
) -> None:
    """`up` refuses a bundle with changed files before it writes anything, and names each of these
    files.

    One file of each kind is changed here. tests/unit/airgap changes each file alone.
    """
    folder = tmp_path / "bundle"
    shutil.copytree(bundle, folder)
    stack = lab.stack(bundle=str(folder), **settings(lab))
    before = lab.host.files()
    entries = {entry.purpose: entry for entry in read_manifest(folder).files}
    assert set(entries) == {"k3s", "k3s-installer", "k3s-images", "k3s-checksums", "dataset"}
    damaged = {entry.name: flip(folder / entry.name) for entry in entries.values()}
    said = " ".join(failure(stack).split())
    for entry in entries.values():
        wanted = f"bundle: {entry.name}: sha256 is {damaged[entry.name]}, not {entry.sha256}"
        assert wanted in said
    assert rewritten(before, lab.host.files()) == []
    assert lab.calls() == []


def flip(path: Path) -> str:
    """Change one bit in the middle of a file, and return the sha256 that the file has then."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def test_host_itself_takes_files_and_changes_from_its_bundle(
    lab: Lab, bundle: Path, tmp_path: Path
) -> None:
    """The script installs k3s from a bundle on the host itself, as with `host: local`.

    The images of a second bundle replace those of the first.
    """
    folder = f"/lab/{tmp_path.name}"
    send = ["tar", "--create", "--directory", str(bundle), "."]
    archive = subprocess.run(send, check=True, capture_output=True).stdout
    lab.host.path("/lab/bundle.tar").write_bytes(archive)
    lab.host.shell(f"mkdir {folder}; tar --extract --directory {folder} --file /lab/bundle.tar")
    manifest = read_manifest(bundle)
    asked = lab.mirror.requests
    variables = {
        "K3S_BUNDLE": folder,
        "K3S_MIRROR": "",
        "K3S_SHA256": manifest.of("k3s")[0].sha256,
        "K3S_INSTALLER_SHA256": manifest.of("k3s-installer")[0].sha256,
    }
    first, second = (f"{folder}/{name}.tar" for name in ("first", "second"))
    lab.host.shell(f"echo 1 >{first}; echo 2 >{second}")
    sums = [hashlib.sha256(text).hexdigest() for text in (b"1\n", b"2\n")]
    said = lab.install_by_hand(**variables, K3S_IMAGES=f"{sums[0]} first.tar")
    assert f"taking k3s {VERSION}" in said
    assert lab.host.shell(f"ls {IMAGES}").split() == [f"disttrain-{sums[0][:16]}-first.tar"]
    # Both files have the same size, so k3s sees the change by the name.
    said = lab.install_by_hand(**variables, K3S_IMAGES=f"{sums[1]} second.tar")
    assert "changed: images" in said
    assert lab.host.shell(f"ls {IMAGES}").split() == [f"disttrain-{sums[1][:16]}-second.tar"]
    assert lab.mirror.requests == asked


def test_disk_without_room_for_the_bundles_images_is_named_before_anything_is_written(
    lab: Lab,
) -> None:
    lab.host.shell("truncate -s 2G /lab/images.tar")
    with lab.small_disk("/var/lib", 1024):
        with pytest.raises(AssertionError, match=r"k3s and its images need 6656 MiB") as failure:
            lab.install_by_hand(K3S_BUNDLE="/lab", K3S_IMAGES=f"{'0' * 64} images.tar")
        assert "/var/lib has 1" in str(failure.value)
        assert not lab.host.exists("/etc/rancher")


def test_selinux_without_k3s_policy_is_refused_and_not_downloaded(lab: Lab) -> None:
    tools = ("getenforce", "rpm")
    lab.host.path("/usr/local/bin/getenforce").write_text("#!/bin/sh\necho Enforcing\n")
    lab.host.path("/usr/local/bin/rpm").write_text("#!/bin/sh\nexit 1\n")
    try:
        lab.host.shell("cd /usr/local/bin; chmod 755 getenforce rpm")
        with pytest.raises(AssertionError, match="k3s-selinux is not installed; a bundle"):
            lab.install_by_hand(K3S_BUNDLE="/lab")
        assert lab.calls() == []
        assert not lab.host.exists("/etc/rancher")
    finally:
        for tool in tools:
            lab.host.path(f"/usr/local/bin/{tool}").unlink()


def test_host_without_default_route_is_told_how_to_make_one(lab: Lab) -> None:
    lab.host.shell("ip route delete default")
    try:
        with pytest.raises(AssertionError, match="this host has no default route") as failure:
            lab.install_by_hand()
        assert "ip route add default via 203.0.113.255 dev dummy0" in str(failure.value)
        assert not lab.host.exists("/usr/local/bin/k3s")
    finally:
        lab.host.shell("ip route add default via 203.0.113.255 dev out0")
