"""What the scripts do on a machine where k3s runs already and a setting has changed."""

from pathlib import Path

import pytest

from tests.unit.node.k3s_host import K3sHost, RefusedError


def is_restarted(host: K3sHost, **more: str) -> bool:
    """Run the script with these variables; return whether it has restarted k3s."""
    return host.run("create", "gpu2", **more).splitlines()[-1] != "started="


@pytest.mark.parametrize("role", ["agent", "server"])
def test_other_authorities_reach_containerd(tmp_path: Path, role: str) -> None:
    """k3s is restarted once when the host has to trust other authorities. containerd reads them
    only at its start, and would go on refusing images (x509). It is not restarted when no
    authorities have to be trusted any more.
    """
    host = K3sHost(tmp_path, role)
    assert is_restarted(host)
    assert not is_restarted(host)
    for authorities in ("0a1b", "2c3d"):
        assert is_restarted(host, AUTHORITIES=authorities)
        assert not is_restarted(host, AUTHORITIES=authorities)
    assert not is_restarted(host)  # it may trust more than it has to
    assert is_restarted(host, AUTHORITIES="2c3d")


def test_k3s_of_an_older_version_goes_on_with_its_authorities(tmp_path: Path) -> None:
    """A k3s that an older version has installed is not restarted by an `up` without other changes,
    although that version has not noted with which authorities k3s was started. The next change of
    the authorities restarts it.
    """
    host = K3sHost(tmp_path)
    host.run("create", "gpu2", AUTHORITIES="0a1b")
    record = host.root / "etc/rancher/disttrain"
    record.write_text(record.read_text().replace("authorities 0a1b\n", ""))
    assert not is_restarted(host, AUTHORITIES="0a1b")
    assert is_restarted(host, AUTHORITIES="2c3d")


@pytest.mark.parametrize("role", ["agent", "server"])
def test_change_that_was_killed_before_k3s_stopped_is_completed(tmp_path: Path, role: str) -> None:
    """If the script is killed when it has written its changes, and k3s still runs without them, the
    next run restarts k3s once, also if nothing differs any more. Where pods with GPUs run, it is
    refused as the change itself is.
    """
    host = K3sHost(tmp_path, role)
    host.run("create", "gpu2")
    change = {"NO_PROXY": "mirror.corp"}
    host.is_cut_off_at_stop()
    host.run("create", "gpu2", **change)
    host.is_back()
    assert host.runs
    with pytest.raises(RefusedError, match=r"k3s would be changed \(restart\), and pods with GPUs"):
        host.run("create", "gpu2", GPU_PODS="disttrain/train-0 ", **change)
    assert is_restarted(host, **change)
    assert not is_restarted(host, **change)


@pytest.mark.parametrize("role", ["agent", "server"])
def test_refusal_under_gpu_pods_says_why(tmp_path: Path, role: str) -> None:
    """Where pods with GPUs keep k3s from being changed, the error says what would change. A newer
    checkout may have a newer k3s as its default: then it also says how to stay with that of now.
    """
    host, pods = K3sHost(tmp_path, role), {"GPU_PODS": "disttrain/train-0 "}
    host.run("create", "gpu2")
    with pytest.raises(RefusedError) as refusal:
        host.run("create", "gpu2", K3S_VERSION="v1.34.3+k3s1", **pods)
    said = str(refusal.value)
    assert "k3s would be changed (binary service), and pods with GPUs run on gpu2" in said
    assert "To stay with the k3s of now: pulumi config set k3sVersion v1.34.2+k3s1" in said
    assert "Let their runs save and end: ./disttrain stop" in said
    with pytest.raises(RefusedError) as refusal:
        host.run("create", "gpu2", HTTPS_PROXY="http://proxy:3128", **pods)
    assert "k3s would be changed (environment), and pods" in str(refusal.value)
    assert "k3sVersion" not in str(refusal.value)


@pytest.mark.parametrize(
    ("key", "variable", "before"),
    [("podCidr", "POD_CIDR", "10.42.0.0/16"), ("serviceCidr", "SERVICE_CIDR", "10.43.0.0/16")],
)
def test_living_cluster_keeps_its_networks(
    tmp_path: Path, key: str, variable: str, before: str
) -> None:
    """Once k3s has been up, another `podCidr` or `serviceCidr` is refused with the command to set
    it back. With another network k3s would end at each start, or pods would resolve no names.
    """
    host = K3sHost(tmp_path)
    other = {variable: "10.99.0.0/16"}
    record = host.root / "etc/rancher/disttrain"
    settings = host.root / "etc/rancher/k3s/config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text('cluster-cidr: "10.42.0.0/16"\nservice-cidr: "10.43.0.0/16"\n')
    record.write_text("owner owner-1\n")
    assert "would change" in host.update_first(**other)  # k3s has never been up yet
    record.write_text("owner owner-1\ngeneration one\n")
    data = host.root / "var/lib/rancher/k3s/server/db/disttrain-generation"
    data.parent.mkdir(parents=True)
    data.write_text("one\n")
    with pytest.raises(RefusedError) as refusal:
        host.update_first(**other)
    said = str(refusal.value)
    assert f"{key}: '10.99.0.0/16' cannot be used: the cluster of this host was made with" in said
    assert f"Set it back: pulumi config set {key} {before}. Or make" in said
    assert "would change" in host.update_first()


def living_cluster(folder: Path, version: str) -> K3sHost:
    """Return a first machine where k3s of this version has been up, and has its data."""
    host = K3sHost(folder)
    record = host.root / "etc/rancher/disttrain"
    record.parent.mkdir(parents=True)
    record.write_text(f"owner owner-1\ninstalled {version}\ngeneration one\n")
    data = host.root / "var/lib/rancher/k3s/server/db/disttrain-generation"
    data.parent.mkdir(parents=True)
    data.write_text("one\n")
    return host


@pytest.mark.parametrize("version", ["v1.34.1+k3s1", "v1.34.2+k3s2", "v1.35.0+k3s1"])
def test_cluster_goes_on_by_one_minor(tmp_path: Path, version: str) -> None:
    """Another release of the same minor version, also an earlier one, and one of the next minor
    version may follow.
    """
    host = living_cluster(tmp_path, "v1.34.2+k3s1")
    assert "would change" in host.update_first(K3S_VERSION=version)


def test_cluster_goes_back_to_no_earlier_minor(tmp_path: Path) -> None:
    """An earlier minor version is refused, as after a change to an older checkout: Kubernetes does
    not support that, and its earlier version may not read what the later one has stored.
    """
    host = living_cluster(tmp_path, "v1.34.2+k3s1")
    with pytest.raises(RefusedError) as refusal:
        host.update_first(K3S_VERSION="v1.33.6+k3s1")
    said = str(refusal.value)
    assert "k3sVersion: 'v1.33.6+k3s1' cannot be used" in said
    assert "Set it back: pulumi config set k3sVersion v1.34.2+k3s1" in said


def test_cluster_skips_no_minor_version(tmp_path: Path) -> None:
    """A minor version is not left out, and the refusal names the one that comes next."""
    host = living_cluster(tmp_path, "v1.9.6+k3s1")
    with pytest.raises(RefusedError) as refusal:
        host.update_first(K3S_VERSION="v1.11.0+k3s1")
    assert "Set a release of v1.10 first" in str(refusal.value)


def test_wiped_cluster_may_have_any_version(tmp_path: Path) -> None:
    """A cluster that begins anew, as its data are gone, may have any version."""
    host = living_cluster(tmp_path, "v1.34.2+k3s1")
    (host.root / "var/lib/rancher/k3s/server/db/disttrain-generation").unlink()
    given = {"K3S_VERSION": "v1.31.6+k3s1", "GENERATION_ID": "two"}
    assert "would change" in host.update_first("create", **given)
