"""The package k3s-selinux on machines with SELinux: how it comes, and when it stays."""

from pathlib import Path

import pytest

from tests.unit.node.k3s_host import K3sHost, RefusedError

# As k3s' installer does: it calls the package manager, and keeps the proxies for k3s.
AS_K3S = """\
echo "skip=$INSTALL_K3S_SKIP_DOWNLOAD https=${https_proxy:-} no=${no_proxy:-}" >ROOT/asked
mkdir -p ROOT/etc/systemd/system
sh -c export | grep -i _proxy >ROOT/etc/systemd/system/k3s-agent.service.env || true
"""
PROXIES = {"HTTPS_PROXY": "http://me:it's@proxy:3128", "NO_PROXY": "10.0.0.0/8"}
REMOVE = "yum remove -y k3s-selinux; echo uninstalled >>ROOT/uninstalled"  # as k3s' own does


def machine(folder: Path, *, has_package: bool) -> K3sHost:
    """Return a machine of the RHEL family, with or without the package."""
    host = K3sHost(folder)
    host.has_program("getenforce", "echo Enforcing")
    host.has_program("rpm", "exit 0" if has_package else "exit 1")
    host.has_program("yum", 'echo "$*" >>ROOT/removed')
    return host


def test_package_is_downloaded_through_the_proxy(tmp_path: Path) -> None:
    """k3s' installer gets the proxies if it has to download the package: a machine that reaches
    nothing without a proxy could not install k3s. What it keeps of them is removed, because k3s
    would go on to use them when the settings name others.
    """
    host = machine(tmp_path, has_package=False)
    host.run("create", "gpu2", **host.installs_k3s_by(AS_K3S), **PROXIES)
    asked = (host.root / "asked").read_text()
    assert asked == f"skip=binary https={PROXIES['HTTPS_PROXY']} no=10.0.0.0/8\n"
    assert (host.root / "etc/systemd/system/k3s-agent.service.env").read_text() == ""


def test_installer_without_packages_gets_no_proxy(tmp_path: Path) -> None:
    """The installer gets no proxy if it downloads nothing."""
    host = machine(tmp_path, has_package=True)
    host.run("create", "gpu2", **host.installs_k3s_by(AS_K3S), **PROXIES)
    assert (host.root / "asked").read_text() == "skip=true https= no=\n"


def test_new_binary_gets_its_type(tmp_path: Path) -> None:
    """The binary gets the type in SELinux that the package has for it, whenever it is replaced."""
    host = machine(tmp_path, has_package=True)
    host.has_program("restorecon", 'echo "$*" >>ROOT/labelled')
    host.run("create", "gpu2", **host.installs_k3s_by(""))
    assert (host.root / "labelled").read_text().splitlines() == [f"{host.root}/usr/local/bin/k3s"]


def test_failed_package_manager_shows_no_password(tmp_path: Path) -> None:
    """The error shows what the package manager said, without the proxy's password."""
    host = machine(tmp_path, has_package=False)
    says = 'echo "Curl error (5): cannot resolve $https_proxy"; exit 1'
    with pytest.raises(RefusedError) as refusal:
        host.run("create", "gpu2", **host.installs_k3s_by(says), **PROXIES)
    said = str(refusal.value)
    assert "Curl error (5): cannot resolve http://[secret]@proxy:3128" in said


@pytest.mark.parametrize("has_package", [True, False])
def test_package_of_others_stays(tmp_path: Path, has_package: bool) -> None:
    """A package that was there before k3s stays when k3s is removed, although k3s' uninstaller
    removes it. On a machine without a network the next `pulumi up` would fail without it.
    """
    host = machine(tmp_path, has_package=has_package)
    host.run("create", "gpu2", **host.installs_k3s_by(""))
    host.removes_k3s_by(REMOVE)
    host.run("delete", "gpu2")
    assert host.was_uninstalled
    assert (host.root / "removed").exists() is not has_package
    assert not (host.root / "var/lib/rancher").exists()


@pytest.mark.parametrize("folder", ["etc/yum.repos.d", "etc/zypp/repos.d"])
@pytest.mark.parametrize("is_theirs", [True, False])
def test_repository_of_others_stays(tmp_path: Path, is_theirs: bool, folder: str) -> None:
    """The file that names Rancher's repository of packages stays when k3s is removed if it was
    there before k3s, although k3s' uninstaller deletes it. An administrator may have made it, with
    the address of a mirror.
    """
    host = machine(tmp_path, has_package=True)
    repository = host.root / folder / "rancher-k3s-common.repo"
    repository.parent.mkdir(parents=True)
    if is_theirs:
        repository.write_text("theirs")
    host.run("create", "gpu2", **host.installs_k3s_by(""))
    if not is_theirs:
        repository.write_text("made by k3s' installer")
    host.removes_k3s_by(f"rm -f ROOT/{folder}/rancher-k3s-common*.repo")
    host.run("delete", "gpu2")
    kept = [path.read_text() for path in repository.parent.iterdir()]
    assert kept == (["theirs"] if is_theirs else [])
