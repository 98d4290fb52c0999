"""What the removal of k3s must leave on a machine: what is mounted there is somebody else's."""

from pathlib import Path

import pytest

from tests.unit.node.k3s_host import K3sHost, RefusedError

VOLUME = "var/lib/kubelet/pods/1/volumes/nfs/v"
THEIRS = "var/lib/cni/theirs"
REMOVE = "rm -rf ROOT/var/lib/kubelet ROOT/run/k3s ROOT/var/lib/rancher/k3s"  # as k3s' own does


@pytest.fixture(params=["agent", "server"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> K3sHost:
    """With k3s, and with a file of somebody else where k3s' tools delete all."""
    made = K3sHost(tmp_path, request.param)
    (made.root / THEIRS).parent.mkdir()
    (made.root / THEIRS).touch()
    made.run("create", "gpu2")
    made.removes_k3s_by(f"{REMOVE}; echo uninstalled >>ROOT/uninstalled")
    return made


@pytest.mark.parametrize("place", [VOLUME, "var/lib/rancher/k3s/storage/a disk"])
def test_data_of_a_mounted_volume_stay(host: K3sHost, place: str) -> None:
    """k3s' uninstaller deleted all checkpoints on a server of NFS, through a busy volume."""
    (host.root / place).mkdir(parents=True)
    server = host.root / "server"
    server.mkdir()
    (server / "checkpoint").write_text("precious")
    # somebody stands in the folder, so that it cannot be unmounted
    host.has_mounts(f"mount --bind ROOT/server 'ROOT/{place}' && cd 'ROOT/{place}'")
    with pytest.raises(RefusedError) as refusal:
        host.run("delete", "gpu2")
    assert f"{host.root / place} is still mounted on this host" in str(refusal.value)
    assert f"umount '{host.root / place}'" in str(refusal.value)
    assert (server / "checkpoint").exists()
    assert (host.root / THEIRS).exists()
    assert not host.was_uninstalled
    host.has_mounts("")
    host.run("delete", "gpu2")
    assert host.was_uninstalled
    assert (host.root / THEIRS).exists()


@pytest.mark.parametrize("shm", ["run/k3s/1/shm", "var/lib/rancher/k3s/agent/containerd/1"])
def test_leftovers_of_containers_do_not_matter(host: K3sHost, shm: str) -> None:
    """What can be unmounted is, and the shared memory of a container holds nothing of others."""
    for folder in (VOLUME, shm, "server"):
        (host.root / folder).mkdir(parents=True)
    (host.root / "server/checkpoint").write_text("precious")
    busy = f"mount -t tmpfs none ROOT/{shm} && cd ROOT/{shm}"
    host.has_mounts(f"mount --bind ROOT/server ROOT/{VOLUME} && {busy}")
    host.run("delete", "gpu2")
    assert host.was_uninstalled
    assert (host.root / "server/checkpoint").exists()
