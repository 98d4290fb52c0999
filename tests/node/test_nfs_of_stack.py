"""`pulumi up` with storage `nfs-first-node` on three hosts: machines come, go, and nothing is left.

The package, apt and systemd are Debian's; k3s and the kernel's NFS server are stand-ins, so no pod
mounts anything. tests/vm/test_nfs_first_node.py has the real server.
"""

from collections.abc import Iterator

import pytest

from tests.node.host import Host
from tests.node.lab import DATA_ROOT, Lab, counts
from tests.node.lan import NAMES, SERVER_ADDRESS, Lan
from tests.node.nfs_packages import PLACE, serve_packages
from tests.node.standing import Standing
from tests.node.test_nfs_server import UNIT, installed, lasting
from tests.node.test_nodes import set_nodes

pytestmark = pytest.mark.stand_in("its agents, which need no other machine's container runtime")
TWO, THREE = NAMES
ADDRESSES = {TWO: "192.0.2.2", THREE: "192.0.2.3"}
ASIDE = ("/etc/apt", "/var/lib/apt/lists")


@pytest.fixture(scope="module")
def hosts(whole_lab: Lab, whole_lan: Lan, standing: Standing) -> Iterator[dict[str, Host]]:
    """All three with Debian's packages at hand, the first one with a kernel that could serve."""
    standing.drop()
    first = whole_lab.host
    found = {first.name: first}
    found |= {name: machine.host for name, machine in whole_lan.machines.items()}
    for host in found.values():
        for place in ASIDE:
            host.shell(f"cp -a {place} /run/aside; mount -t tmpfs tmpfs {place}")
            host.shell(f"cp -a /run/aside/. {place}; rm -rf /run/aside")
        serve_packages(host)
    first.shell("mount -t tmpfs tmpfs /proc/fs; mkdir /proc/fs/nfsd; echo 0 >/proc/fs/nfsd/threads")
    first.shell("cat >/etc/systemd/system/nfs-server.service; systemctl daemon-reload", UNIT)
    yield found
    first.shell("rm /etc/systemd/system/nfs-server.service; systemctl daemon-reload")
    first.shell("umount /proc/fs")
    for host in found.values():
        host.shell(f"umount {' '.join(ASIDE)}; rm -rf {PLACE}")
    # What Debian's packages leave for ever, such as their users, is as at first from now on.
    assert lasting(whole_lab.before, first.files()) == []
    whole_lab.before = first.files()


def served(host: Host) -> set[str]:
    """To whom the first machine serves its folder."""
    lines = [line.split() for line in host.shell("exportfs -s").splitlines()]
    assert {folder for folder, _ in lines} == {DATA_ROOT}
    return {client.partition("(")[0] for _, client in lines}


def test_machines_mount_what_the_first_one_serves(whole_lan: Lan, hosts: dict[str, Host]) -> None:
    """A second `up` changes nothing, and a machine that comes or goes changes no other one."""
    lan, lab = whole_lan, whole_lan.lab
    packages = {name: installed(host) for name, host in hosts.items()}
    first = hosts[lab.host.name]
    stack = lan.stack(TWO, storage="nfs-first-node", storageOptions={})
    stack.up()
    try:
        assert served(first) == {SERVER_ADDRESS, ADDRESSES[TWO]}
        volume = "jsonpath={.items[*].spec.nfs.server} {.items[*].spec.nfs.path}"
        assert lab.kubectl("get", "pv", "-o", volume) == f"{SERVER_ADDRESS} {DATA_ROOT}"
        assert set(counts(again := stack.up())) == {"unchanged"}, again

        set_nodes(stack, lan.settings(TWO, THREE))
        changed = counts(output := stack.up())
        assert not {"updated", "deleted", "replaced"} & changed.keys(), output
        assert served(first) == {SERVER_ADDRESS, *ADDRESSES.values()}
        assert hosts[THREE].exists("/sbin/mount.nfs")

        set_nodes(stack, lan.settings(TWO))
        changed = counts(output := stack.up())
        assert not {"updated", "created", "replaced"} & changed.keys(), output
        assert served(first) == {SERVER_ADDRESS, ADDRESSES[TWO]}
        assert installed(hosts[THREE]) == packages[THREE]
    finally:
        stack.destroy()
    assert {name: installed(host) for name, host in hosts.items()} == packages
    assert first.exists(f"{DATA_ROOT}/.disttrain"), "the data are kept"
    first.shell(f"rm -rf {DATA_ROOT}")
    for name, machine in lan.machines.items():
        changed = lasting(machine.before, machine.host.files())
        assert [path for path in changed if not path.startswith(ASIDE)] == [], name
