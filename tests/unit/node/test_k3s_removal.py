"""What the removal of k3s must leave on a machine: mounted volumes, and files and settings of
others.
"""

from pathlib import Path

import pytest

from tests.unit.node.k3s_host import K3sHost, RefusedError

VOLUME = "var/lib/kubelet/pods/1/volumes/nfs/v"
THEIRS = "var/lib/cni/theirs"
REMOVE = "rm -rf ROOT/var/lib/kubelet ROOT/run/k3s ROOT/var/lib/rancher/k3s"  # as k3s' own does


@pytest.fixture(params=["agent", "server"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> K3sHost:
    """Return a machine with k3s, and with a file of somebody else in a folder that k3s' tools
    delete.
    """
    made = K3sHost(tmp_path, request.param)
    (made.root / THEIRS).parent.mkdir()
    (made.root / THEIRS).touch()
    made.run("create", "gpu2")
    made.removes_k3s_by(f"{REMOVE}; echo uninstalled >>ROOT/uninstalled")
    return made


@pytest.mark.parametrize("place", [VOLUME, "var/lib/rancher/k3s/storage/a disk"])
def test_data_of_a_mounted_volume_stay(host: K3sHost, place: str) -> None:
    """The removal is refused while a volume is mounted that cannot be unmounted. Otherwise k3s'
    uninstaller would delete the files in it, such as all checkpoints on an NFS server.
    """
    (host.root / place).mkdir(parents=True)
    server = host.root / "server"
    server.mkdir()
    (server / "checkpoint").write_text("precious")
    # the working folder of the script is in the mounted folder, so it cannot be unmounted
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


def test_cut_removal_gives_paths_back(host: K3sHost) -> None:
    """Paths of others are moved aside while k3s' tools remove it. If the power fails meanwhile and
    `pulumi up` is run, they are back before k3s starts, and the next removal leaves them too.
    """
    host.is_cut_off_at("/var/lib/cni")
    host.run("delete", "gpu2")
    assert not (host.root / THEIRS).exists()
    host.is_back()
    host.run("create", "gpu2")
    assert host.runs
    assert (host.root / THEIRS).exists()
    host.removes_k3s_by(REMOVE)
    host.run("delete", "gpu2")
    assert (host.root / THEIRS).exists()
    assert not [*host.root.rglob("*.disttrain-kept")]


def test_cut_removal_mixes_no_paths(host: K3sHost) -> None:
    """After a removal that was cut off, k3s may start again with the machine, and make such a path
    anew. The next removal deletes that one, and puts the one of others back.
    """
    host.is_cut_off_in_uninstaller()
    host.run("delete", "gpu2")
    assert not (host.root / THEIRS).exists()
    host.is_back()
    (host.root / "var/lib/cni/networks").mkdir(parents=True)
    assert host.runs
    host.run("create", "gpu2")
    assert (host.root / "var/lib/cni/networks").exists()
    host.removes_k3s_by(f"{REMOVE} ROOT/var/lib/cni")
    host.run("delete", "gpu2")
    assert [path.name for path in (host.root / "var/lib/cni").iterdir()] == ["theirs"]


@pytest.mark.parametrize("shm", ["run/k3s/1/shm", "var/lib/rancher/k3s/agent/containerd/1"])
def test_leftovers_of_containers_do_not_matter(host: K3sHost, shm: str) -> None:
    """The removal unmounts a volume and goes on, and its data stay. The shared memory of a
    container need not be unmounted first, as it holds nothing of others.
    """
    for folder in (VOLUME, shm, "server"):
        (host.root / folder).mkdir(parents=True)
    (host.root / "server/checkpoint").write_text("precious")
    busy = f"mount -t tmpfs none ROOT/{shm} && cd ROOT/{shm}"
    host.has_mounts(f"mount --bind ROOT/server ROOT/{VOLUME} && {busy}")
    host.run("delete", "gpu2")
    assert host.was_uninstalled
    assert (host.root / "server/checkpoint").exists()


PLUGINS = "usr/libexec/kubernetes/kubelet-plugins/volume/exec"  # each kubelet makes it


def test_plugin_folder_of_the_kubelet_goes(host: K3sHost) -> None:
    """The folder for plugins that the kubelet has made is removed, with empty folders above it.
    k3s' own uninstaller leaves it, and a bare machine would not be bare again after `pulumi
    destroy`.
    """
    (host.root / PLUGINS).mkdir(parents=True)
    host.run("delete", "gpu2")
    assert not (host.root / "usr/libexec").exists()


def test_plugins_of_somebody_else_stay(host: K3sHost) -> None:
    """The kubelet's folder for plugins stays if somebody has put a plugin into it."""
    (host.root / PLUGINS / "theirs").mkdir(parents=True)
    host.run("delete", "gpu2")
    assert (host.root / PLUGINS / "theirs").exists()


def test_plugin_folder_of_before_stays(tmp_path: Path) -> None:
    """The folder for plugins stays if it was there before k3s was installed."""
    host = K3sHost(tmp_path)
    (host.root / PLUGINS).mkdir(parents=True)
    host.run("create", "gpu2")
    host.run("delete", "gpu2")
    assert (host.root / PLUGINS).exists()


@pytest.mark.parametrize(
    "file",
    [
        "etc/rancher/k3s/registries.yaml",
        "etc/rancher/k3s/config.yaml",
        "etc/rancher/k3s/config.yaml.d/site.yaml",
        "etc/rancher/k3s/.audit.yaml",
        "etc/default/SERVICE",
        "etc/sysconfig/SERVICE",
        "etc/systemd/system/SERVICE.service.d/limits.conf",
    ],
)
@pytest.mark.parametrize("role", ["agent", "server"])
def test_settings_of_an_administrator_are_refused(tmp_path: Path, role: str, file: str) -> None:
    """Settings for k3s that an administrator has made stop the installation and stay as they are.
    Otherwise `up` would write over them, and `destroy` would delete them with k3s; or k3s would
    read them and be another one than the stack's settings say.
    """
    host = K3sHost(tmp_path, role)
    theirs = host.root / file.replace("SERVICE", "k3s" if role == "server" else "k3s-agent")
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")
    for action in ("prepare", "create"):
        with pytest.raises(RefusedError, match=f"{host.root}/etc/.* is on this host already"):
            host.run(action, "gpu2")
    host.run("delete", "gpu2")
    assert theirs.read_text() == "theirs"
    assert not (host.root / "etc/rancher/disttrain").exists()
    theirs.rename(tmp_path / "aside")
    if theirs.parent.name.endswith(".d"):
        theirs.parent.rmdir()
    host.run("create", "gpu2")


def test_own_settings_of_a_cut_installation_are_taken_up(tmp_path: Path) -> None:
    """An installation that was cut off can be completed: its settings for k3s are known as this
    program's, because the record of this is written first.
    """
    host = K3sHost(tmp_path)
    host.is_cut_off_in_installer()
    host.run("create", "gpu2")
    assert (host.root / "etc/rancher/k3s/config.yaml").exists()
    assert not host.runs
    host.is_back()
    host.run("create", "gpu2")
    assert host.runs


@pytest.mark.parametrize("is_theirs", [True, False])
def test_cache_of_kubectl_stays_where_it_was(tmp_path: Path, is_theirs: bool) -> None:
    """The removal deletes kubectl's cache in root's home only if it was not there before. Root of
    the machine may use kubectl for other clusters.
    """
    host = K3sHost(tmp_path)
    cache = host.root / "root/.kube/cache"
    if is_theirs:
        cache.mkdir(parents=True)
    host.run("create", "gpu2")
    cache.mkdir(parents=True, exist_ok=True)  # as `k3s kubectl` does
    host.run("delete", "gpu2")
    assert cache.exists() is is_theirs
    assert cache.parent.exists() is is_theirs


IMPORTS = 'imports = ["{root}/etc/containerd/conf.d/*.toml"]\nversion = 2\n'
DROP_IN = "etc/containerd/conf.d/99-nvidia.toml"
FEATURES = "etc/kubernetes/node-feature-discovery/features.d"


def operator_writes(host: K3sHost) -> None:
    """Make what the GPU Operator's toolkit (v1.18 and later) and its node feature discovery leave
    on a machine whose k3s ends before they could remove it.
    """
    (host.root / DROP_IN).parent.mkdir(parents=True, exist_ok=True)
    (host.root / DROP_IN).write_text("version = 2\n")
    config = host.root / "etc/containerd/config.toml"
    if not config.exists():
        config.write_text(IMPORTS.format(root=host.root))
    (host.root / FEATURES).mkdir(parents=True, exist_ok=True)


def test_what_the_operator_wrote_goes_with_k3s(tmp_path: Path) -> None:
    """The removal of k3s also deletes the toolkit's configuration of containerd and the folder of
    the node feature discovery. Otherwise the configuration would go on importing a file that is
    gone.
    """
    host = K3sHost(tmp_path)
    host.run("create", "gpu2")
    operator_writes(host)
    host.run("delete", "gpu2")
    for folder in ("etc/containerd", "etc/kubernetes"):
        assert not (host.root / folder).exists(), folder


@pytest.mark.parametrize("when", ["before", "since"])
def test_containerds_configuration_of_others_stays(tmp_path: Path, when: str) -> None:
    """A configuration of containerd and a feature file that others have made, before or since, stay
    as they are. Docker brings its own containerd, and a toolkit adds its import to that file.
    """
    host = K3sHost(tmp_path)
    theirs, label = host.root / "etc/containerd/config.toml", host.root / FEATURES / "label"
    # Even a file with the very text of the toolkit is theirs if it was there before.
    text = IMPORTS.format(root=host.root) + ("" if when == "before" else "[debug]\n")
    if when == "since":
        host.run("create", "gpu2")
    for path in (theirs, label):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    if when == "before":
        host.run("create", "gpu2")
    operator_writes(host)
    host.run("delete", "gpu2")
    assert theirs.read_text() == label.read_text() == text
    assert not (host.root / DROP_IN).exists()
