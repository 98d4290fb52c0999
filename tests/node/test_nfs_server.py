"""The NFS server of the first machine with Debian's own package, package manager and systemd.

The kernel of a test host has no NFS server. The first test is about that fault. In the others, the
unit and /proc/fs/nfsd are stand-ins. The real server is in tests/vm/test_nfs_first_node.py.
"""

import subprocess
from collections.abc import Iterator

import pytest

from infra.node.shell_program import assemble_program, script_text
from tests.node.host import Host
from tests.node.nfs_host import UNIT, installed, lasting
from tests.node.nfs_packages import serve_packages

FOLDER = "/var/lib/disttrain"
SERVER = {"DATA_ROOT": FOLDER, "SERVER_ADDRESS": "192.0.2.1", "OWNER": "one", "STACK": "dev"}


@pytest.fixture(scope="module")
def booted() -> Iterator[Host]:
    """Yield a host with Debian's NFS packages at hand and a data folder, which all tests here
    share.
    """
    host = Host("nfs-node")
    try:
        serve_packages(host)
        host.shell(f"mkdir -p {FOLDER}; chown 1000:1000 {FOLDER}; echo text >{FOLDER}/checkpoint")
        host.shell("ip address add 192.0.2.1/32 dev lo")
        yield host
    finally:
        host.close()


@pytest.fixture
def host(booted: Host) -> Iterator[Host]:
    """Yield the host, and remove the server, the client and the kernel's stand-in afterwards."""
    yield booted
    run(booted, "nfs-server.sh", "delete", **SERVER)
    run(booted, "nfs-client.sh", "delete", NODE="gpu2", SERVER_ADDRESS="192.0.2.1")
    booted.shell("rm -rf /etc/systemd/system/nfs-server.service; systemctl daemon-reload")
    booted.try_shell("umount /proc/fs; rm -f /etc/exports")


@pytest.fixture
def kernel(host: Host) -> Host:
    """Return the host with the stand-in of a kernel that has an NFS server."""
    host.shell("mount -t tmpfs tmpfs /proc/fs; mkdir /proc/fs/nfsd; echo 0 >/proc/fs/nfsd/threads")
    host.shell("cat >/etc/systemd/system/nfs-server.service; systemctl daemon-reload", UNIT)
    return host


def run(
    host: Host, script: str, action: str = "create", **given: str
) -> subprocess.CompletedProcess[str]:
    """Run a script on the host with these variables."""
    return host.try_shell(
        f"sh -s -- {action}", assemble_program(script_text(script), given, "root")
    )


def well(done: subprocess.CompletedProcess[str]) -> str:
    """Check that a script has succeeded, and return its output."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_machine_without_the_kernel_module_is_told_so_and_left_as_it_was(host: Host) -> None:
    """On a kernel without an NFS server, the script fails and says so, and `destroy` undoes all of
    it.
    """
    before, packages = host.files(), installed(host)
    done = run(host, "nfs-server.sh", **SERVER)
    assert done.returncode == 1
    assert "installing nfs-kernel-server by apt-get" in done.stdout
    assert "does not start: the lines above say why" in done.stderr
    assert "module nfsd" in done.stderr
    assert len(done.stderr.splitlines()) > 1, "what systemd says of it"
    assert installed(host) != packages
    well(run(host, "nfs-server.sh", "delete", **SERVER))
    assert installed(host) == packages
    assert lasting(before, host.files()) == []


def test_server_comes_by_its_package_and_goes_with_it(kernel: Host) -> None:
    """The script installs and starts the NFS server, and its `delete` leaves the host as it was.

    A second run changes nothing, and an /etc/exports from before survives the package's removal.
    """
    host = kernel
    host.shell("echo '# kept for later' >/etc/exports")
    before, packages = host.files(), installed(host)
    assert "is served by NFS at 192.0.2.1" in well(run(host, "nfs-server.sh", **SERVER))
    machine = {"DATA_ROOT": FOLDER, "NODE": "gpu2", "CLIENT": "192.0.2.2", "OWNER": "one"}
    well(run(host, "nfs-export.sh", **machine))
    served = [line.split() for line in host.shell("exportfs -s").splitlines()]
    assert {word.partition("(")[0] for _, word in served} == {"192.0.2.1", "192.0.2.2"}
    assert {folder for folder, _ in served} == {FOLDER}
    up = host.files()
    well(run(host, "nfs-server.sh", **SERVER))
    well(run(host, "nfs-export.sh", **machine))
    assert lasting(up, host.files()) == ["/var/lib/nfs/etab"] or lasting(up, host.files()) == []
    assert host.shell("systemctl is-enabled nfs-server").strip() == "enabled"
    well(run(host, "nfs-server.sh", "delete", **SERVER))
    assert installed(host) == packages
    assert lasting(before, host.files()) == []
    assert host.shell("cat /etc/exports") == "# kept for later\n"
    assert host.shell(f"cat {FOLDER}/checkpoint") == "text\n"


def test_client_comes_by_its_package_and_goes_with_it(host: Host) -> None:
    before, packages = host.files(), installed(host)
    machine = {"NODE": "gpu2", "SERVER_ADDRESS": "192.0.2.1"}
    said = well(run(host, "nfs-client.sh", **machine))
    assert said.splitlines()[-1] == "address=192.0.2.1"
    assert host.exists("/sbin/mount.nfs")
    assert well(run(host, "nfs-client.sh", **machine)).splitlines() == ["address=192.0.2.1"]
    well(run(host, "nfs-client.sh", "delete", **machine))
    assert installed(host) == packages
    assert lasting(before, host.files()) == []


def test_package_that_came_before_stays_with_its_service(kernel: Host) -> None:
    host = kernel
    host.shell("apt-get -q update; DEBIAN_FRONTEND=noninteractive apt-get -q -y install rpcbind")
    packages = installed(host)
    try:
        well(run(host, "nfs-server.sh", **SERVER))
        well(run(host, "nfs-server.sh", "delete", **SERVER))
        assert installed(host) == packages
    finally:
        host.shell("apt-get -q -y purge --auto-remove rpcbind")


def test_repository_that_does_not_answer_is_named(host: Host) -> None:
    """If the package repository does not answer, the script fails without installing anything.

    No password in the repository's address is shown.
    """
    host.shell("mv /etc/apt/sources.list /etc/apt/aside; rm -rf /var/lib/apt/lists/*")
    host.shell("echo 'deb http://user:secret@192.0.2.99 ./' >/etc/apt/sources.list")
    try:
        packages = installed(host)
        done = run(host, "nfs-server.sh", **SERVER)
        assert done.returncode == 1
        assert "apt-get cannot install nfs-kernel-server" in done.stderr
        assert "secret@" not in done.stderr + done.stdout
        assert installed(host) == packages
    finally:
        host.shell("mv /etc/apt/aside /etc/apt/sources.list")
