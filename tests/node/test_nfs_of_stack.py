"""`pulumi up` with the storage `nfs-first-node` on three hosts: machines come, go and change names.

Debian's package, apt and systemd are real. k3s and the kernel's NFS server are stand-ins, so no pod
mounts anything. tests/vm/test_nfs_first_node.py has the real server.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.host import Host
from tests.node.lab import DATA_ROOT, Lab, counts, failure
from tests.node.lan import NAMES, SERVER_ADDRESS, Lan, find_again, lose, other_address
from tests.node.members import TRUST, set_nodes
from tests.node.nfs_host import UNIT, installed, lasting
from tests.node.nfs_packages import PLACE, serve_packages
from tests.node.standing import Standing

pytestmark = pytest.mark.stand_in("its agents, which need no other machine's container runtime")
TWO, THREE = NAMES
ADDRESSES = {TWO: "192.0.2.2", THREE: "192.0.2.3"}
ASIDE = ("/etc/apt", "/var/lib/apt/lists")
STORAGE = {"storage": "nfs-first-node", "storageOptions": {}}
NOTING_EXPORTFS, CALLS = "/usr/local/bin/exportfs", "/run/exportfs-calls"  # found before Debian's
# Notes the addresses of the nodes, and then calls the real program.
NOTING = """#!/bin/sh
each='{{range .items}}{{.metadata.name}}={{(index .status.addresses 0).address}} {{end}}'
nodes=$(KUBECACHEDIR=/run/k3s/disttrain-kubectl k3s kubectl get nodes -o "go-template=$each")
echo "$* | $nodes" >>/run/exportfs-calls
exec /usr/sbin/exportfs "$@"
"""


@pytest.fixture(scope="module")
def all_hosts(whole_lab: Lab, whole_lan: Lan, standing: Standing) -> Iterator[dict[str, Host]]:
    """Yield three hosts that can install Debian's packages, the first with a kernel that seems to
    serve.

    The hosts are as before afterwards, except for what Debian's packages leave for good.
    """
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
    # What Debian's packages leave for good, such as their users, counts as the first state from
    # now.
    assert lasting(whole_lab.before, first.files()) == []
    whole_lab.before = first.files()


def served(host: Host) -> set[str]:
    """Return the addresses to which the first machine serves its folder."""
    lines = [line.split() for line in host.shell("exportfs -s").splitlines()]
    assert {folder for folder, _ in lines} == {DATA_ROOT}
    return {client.partition("(")[0] for _, client in lines}


def is_as_before(lan: Lan, hosts: dict[str, Host], before: dict[str, set[str]]) -> None:
    """Check that nothing of the stack is left on any machine, except for the first one's data."""
    assert {name: installed(host) for name, host in hosts.items()} == before
    for name, machine in lan.machines.items():
        changed = lasting(machine.before, machine.host.files())
        assert [path for path in changed if not path.startswith(ASIDE)] == [], name
    assert not hosts[lan.lab.host.name].exists(TRUST)


@pytest.fixture
def hosts(whole_lan: Lan, all_hosts: dict[str, Host]) -> Iterator[dict[str, Host]]:
    """Yield the three hosts by their names, and check after the test that they are as before."""
    before = {name: installed(host) for name, host in all_hosts.items()}
    yield all_hosts
    all_hosts[whole_lan.lab.host.name].shell(f"rm -rf {DATA_ROOT}")
    is_as_before(whole_lan, all_hosts, before)


@contextlib.contextmanager
def exports_noted(first: Host) -> Iterator[list[str]]:
    """Yield a list that has, after the block, each call of exportfs and the nodes' addresses then.

    The calls come from a script that is found before Debian's exportfs, and calls it.
    """
    calls: list[str] = []
    first.shell(f"cat >{NOTING_EXPORTFS}; chmod 755 {NOTING_EXPORTFS}", NOTING)
    try:
        yield calls
    finally:
        calls += first.shell(f"cat {CALLS} 2>/dev/null || true").splitlines()
        first.shell(f"rm -f {NOTING_EXPORTFS} {CALLS}")


def permissions(first: Host) -> dict[str, str]:
    """Return `{address: node}`: for which node each file of exports is."""
    files = first.shell("cd /etc/exports.d; grep -H '^# made by disttrain: node' disttrain-*")
    found = re.findall(r"^disttrain-(\S+)\.exports:.*: node (\S+) by ", files, re.MULTILINE)
    return dict(found)


def test_machines_mount_what_the_first_one_serves(whole_lan: Lan, hosts: dict[str, Host]) -> None:
    """The first machine serves its folder to exactly the machines of the stack.

    A second `up` changes nothing, and a machine that comes or goes changes no other one.
    """
    lan, lab = whole_lan, whole_lan.lab
    first, before = hosts[lab.host.name], installed(hosts[THREE])
    stack = lan.stack(TWO, **STORAGE)
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
        assert installed(hosts[THREE]) == before
    finally:
        stack.destroy()
    assert first.exists(f"{DATA_ROOT}/.disttrain"), "the data are kept"


def test_first_machine_installed_anew_serves_all_again(
    whole_lan: Lan, hosts: dict[str, Host]
) -> None:
    """`up` lets a first machine that has lost its k3s and its exports serve all machines again.

    Otherwise its NFS server would come back without permissions for the others.
    """
    first = hosts[whole_lan.lab.host.name]
    stack = whole_lan.stack(TWO, **STORAGE)
    stack.up()
    try:
        first.shell("systemctl stop k3s; rm -rf /var/lib/rancher/k3s; systemctl start k3s")
        first.shell("rm /etc/exports.d/disttrain*; exportfs -ra")
        assert first.shell("exportfs -s").strip() == ""
        stack.up()
        assert served(first) == {SERVER_ADDRESS, ADDRESSES[TWO]}
        assert set(counts(again := stack.up())) == {"unchanged"}, again
    finally:
        stack.destroy()


def test_machines_with_other_names_are_never_shut_out(
    whole_lan: Lan, hosts: dict[str, Host], tmp_path: Path
) -> None:
    """No machine loses its access to the data while it gets another name, or two swap their names.

    Otherwise pods could not save meanwhile. The machines also keep the authorities of `caBundle`.
    """
    lan, lab = whole_lan, whole_lan.lab
    first, machines = hosts[lab.host.name], (hosts[TWO], hosts[THREE])
    authority = tmp_path / "authority.pem"
    authority.write_text(lab.mirror.certificate)
    two, three = lan.settings(TWO, THREE)
    stack = lan.stack(TWO, THREE, **STORAGE, caBundle=str(authority))
    stack.up()
    try:
        for names in (("gpu-new", THREE), (THREE, "gpu-new")):
            set_nodes(stack, [{**two, "name": names[0]}, {**three, "name": names[1]}])
            with exports_noted(first) as calls:
                output = stack.up()
            assert [call for call in calls if call.startswith("-i")], "nothing was noted"
            assert [call for call in calls if call.startswith("-u")] == [], output
            assert served(first) == {SERVER_ADDRESS, *ADDRESSES.values()}
            assert permissions(first) == dict(zip(ADDRESSES.values(), names, strict=True))
            for host in machines:
                assert host.exists("/sbin/mount.nfs"), output
                assert host.path(TRUST).read_text() == lab.mirror.certificate, output
            assert set(counts(again := stack.up())) == {"unchanged"}, again
    finally:
        stack.destroy()


def test_machines_by_other_addresses_are_never_shut_out(
    whole_lan: Lan, hosts: dict[str, Host]
) -> None:
    """No machine loses its access to the data when the settings name it by another address.

    To Pulumi's engine that is another machine, and it deletes last what belongs to the old address.
    """
    lan, lab = whole_lan, whole_lan.lab
    first, second = hosts[lab.host.name], hosts[TWO]
    stack = lan.stack(TWO, **STORAGE)
    stack.up()
    try:
        noted: list[str] = []
        for change in ("nodes", "sshHost"):
            if change == "nodes":
                set_nodes(stack, [{**lan.settings(TWO)[0], "address": other_address(second)}])
            else:
                stack.set("sshHost", other_address(lab.host))
            with exports_noted(first) as calls:
                output = stack.up()
            noted += calls
            assert [call for call in calls if call.startswith("-u")] == [], output
            assert served(first) == {SERVER_ADDRESS, ADDRESSES[TWO]}
            assert permissions(first) == {ADDRESSES[TWO]: TWO}
            assert second.exists("/sbin/mount.nfs"), output
            assert set(counts(again := stack.up())) == {"unchanged"}, again
        assert noted, "nothing was noted"  # another address of a further machine changes no export
    finally:
        stack.destroy()


def test_name_of_a_lost_machine_with_nfs_goes_to_another(
    whole_lan: Lan, hosts: dict[str, Host]
) -> None:
    """The name of a lost machine can go to another one, once the list says that the first is lost.

    The `up` that was refused before has already begun to install the other machine's NFS client.
    """
    lan = whole_lan
    stack = lan.stack(TWO, **STORAGE)
    stack.up()
    instead = [{**lan.settings(THREE)[0], "name": TWO}]
    lose(hosts[TWO])
    try:
        set_nodes(stack, instead)
        assert "`gone: true`" in failure(stack)
        set_nodes(stack, lan.settings(TWO, gone=True))
        stack.up()
        set_nodes(stack, instead)
        stack.up()
        assert served(hosts[lan.lab.host.name]) == {SERVER_ADDRESS, ADDRESSES[THREE]}
        assert set(counts(again := stack.up())) == {"unchanged"}, again
    finally:
        find_again(hosts[TWO])
        set_nodes(stack, lan.settings(TWO))  # The machine still has all that it had.
        stack.up()
        stack.destroy()
