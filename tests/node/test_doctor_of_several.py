"""The doctor on three hosts over SSH names each fault between two hosts by its id and the pair."""

import contextlib
import functools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from cli.check import Result
from cli.doctor.command import examine
from tests.in_depth import in_depth
from tests.node.host import Host
from tests.node.lan import BRIDGE, NAMES, SERVER_ADDRESS, Lan, find_again, lose

TWO, THREE = NAMES


@dataclass(frozen=True)
class Fault:
    """A rule of a host's firewall about packets from one address, and the doctor's finding then."""

    host: str
    source: str
    rule: str
    check_id: str
    place: str


def address(lan: Lan, name: str) -> str:
    """Return the address by which the other hosts reach this one."""
    found = lan.machines[name].host.shell("ip -4 -o address show scope global").split()
    return next(word.split("/")[0] for word in found if word.startswith("192.0.2."))


def between(lan: Lan) -> set[tuple[str, str]]:
    """Return the ids and places of all findings that are about several machines."""
    results = [result for result in examine(lan.doctor_plan()).results if result.is_finding]
    return {(r.id, r.place) for r in results if is_of_several(r)}


def is_of_several(result: Result) -> bool:
    """Return whether a result is about several machines."""
    words = ("pair-", "same-", "data-is", "gpus-of", "connection")
    return result.id.startswith(words)


@contextlib.contextmanager
def present(lan: Lan, fault: Fault) -> Iterator[None]:
    """Let the firewall have the rule during the block."""
    change = functools.partial(firewall, host_of(lan, fault.host), fault)
    change("-I")
    try:
        yield
    finally:
        change("-D")


def host_of(lan: Lan, name: str) -> Host:
    """Return the host of this name, or the first machine for any other text."""
    return lan.machines[name].host if name in lan.machines else lan.lab.host


def firewall(host: Host, fault: Fault, action: str) -> None:
    """Insert or delete a rule of a host. This is done from outside, because the hosts lack
    iptables.
    """
    network = ("nsenter", "--target", str(host.pid), "--net", "--")
    rule = ("--source", fault.source, *fault.rule.split())
    subprocess.run([*network, "iptables", "--wait", action, "INPUT", *rule], check=True)


def faults(lan: Lan) -> dict[str, Fault]:
    """Return firewall rules by which a host loses or refuses the packets of another one."""
    server = lan.lab.host.address
    lost, refused = "--jump DROP", "--jump REJECT --reject-with icmp-admin-prohibited"
    api, kubelet = "--protocol tcp --dport 6443", "--protocol tcp --dport 10250"
    flannel = "--protocol udp --dport 8472"
    sharing = "--protocol tcp --dport 5001"
    two, three = address(lan, TWO), address(lan, THREE)
    return {
        "api": Fault(server, two, f"{api} {lost}", "pair-api-port", f"{TWO} -> {server}"),
        "kubelet": Fault(
            TWO, SERVER_ADDRESS, f"{kubelet} {refused}", "pair-kubelet-port", f"{server} -> {TWO}"
        ),
        "flannel": Fault(TWO, three, f"{flannel} {lost}", "pair-flannel-port", f"{THREE} -> {TWO}"),
        "nfs": Fault(
            server,
            three,
            f"--protocol tcp --dport 2049 {lost}",
            "pair-nfs-port",
            f"{THREE} -> {server}",
        ),
        "sharing": Fault(
            THREE, two, f"{sharing} {lost}", "pair-sharing-ports", f"{TWO} -> {THREE}"
        ),
    }


def test_hosts_that_reach_each_other_have_no_finding(lan: Lan) -> None:
    """Hosts that reach each other give no finding about pairs. Each is examined by itself too."""
    report = examine(lan.doctor_plan())
    assert report.reached
    assert between(lan) == set()
    places = {result.place for result in report.results if result.id == "kernel"}
    assert places == {lan.lab.host.address, *NAMES}
    for asked in ("pair-flannel-port", "pair-source", "pair-mtu", "pair-latency"):
        ways = {result.place for result in report.results if result.id == asked}
        assert len(ways) == 6, asked  # all three pairs, both ways


@pytest.mark.parametrize(
    "name", ["api", in_depth("kubelet"), "flannel", in_depth("sharing"), in_depth("nfs")]
)
def test_fault_between_two_hosts_is_named_by_the_pair(lan: Lan, name: str) -> None:
    fault = faults(lan)[name]
    with present(lan, fault):
        assert between(lan) == {(fault.check_id, fault.place)}
    assert between(lan) == set()


def test_etcd_of_two_servers_that_do_not_reach_each_other_is_named(lan: Lan) -> None:
    """A blocked etcd port is named if both hosts are to be servers, and not if they are agents."""
    rule = "--protocol tcp --dport 2380 --jump DROP"
    fault = Fault(TWO, address(lan, THREE), rule, "pair-etcd-ports", f"{THREE} -> {TWO}")
    with present(lan, fault):
        found = [r for r in examine(lan.doctor_plan(TWO, THREE)).results if r.is_finding]
        assert {(r.id, r.place) for r in found if is_of_several(r)} == {
            (fault.check_id, fault.place)
        }
        assert between(lan) == set()


def test_packets_that_are_too_large_for_the_way_are_named(lan: Lan) -> None:
    """The doctor names a host whose large packets get lost on the way to the other hosts.

    Otherwise pods would start and then hang. Here the host's interface takes larger packets than
    the bridge behind it, which drops them silently.
    """
    host = lan.machines[TWO].host
    host.shell(f"ip link set {BRIDGE} mtu 9000")
    try:
        assert between(lan) == {
            ("pair-mtu", f"{TWO} -> {other}") for other in (lan.lab.host.address, THREE)
        }
    finally:
        host.shell(f"ip link set {BRIDGE} mtu 1500")
    assert between(lan) == set()


# What is done on gpu-two, what undoes it, and the id and place of the finding; FIRST stands for
# the first machine.
CHANGES = {
    "host name": (
        f"hostname {THREE}",
        f"hostname {TWO}",
        "same-name",
        f"{TWO}, {THREE}",
    ),
    "source": (
        f"ip address add 192.0.2.77/24 dev {BRIDGE}; "
        f"ip route add 192.0.2.3/32 dev {BRIDGE} src 192.0.2.77",
        f"ip route del 192.0.2.3/32; ip address del 192.0.2.77/24 dev {BRIDGE}",
        "pair-source",
        f"{TWO} -> {THREE}",
    ),
    "clock": (  # The scripts read the clock with date, and all hosts share the clock of one kernel.
        "printf '#!/bin/sh\\necho $(($(/usr/bin/date +%%s) + 600))\\n' >/usr/local/bin/date; "
        "chmod 755 /usr/local/bin/date",
        "rm /usr/local/bin/date",
        "pair-clock",
        f"FIRST, {TWO}",
    ),
    "k3s": (
        "mkdir -p /etc/rancher; echo version v1.30.1+k3s1 >/etc/rancher/disttrain",
        "rm -r /etc/rancher",
        "same-k3s",
        f"{TWO}, {THREE}",
    ),
}


@pytest.mark.in_depth
@pytest.mark.parametrize("name", list(CHANGES))
def test_change_of_a_host_is_named_by_the_pair(lan: Lan, name: str) -> None:
    """A difference between two hosts, or a name that both have, is named with the pair of hosts."""
    do, undo, check_id, place = CHANGES[name]
    place = place.replace("FIRST", lan.lab.host.address)
    host = lan.machines[TWO].host
    other = lan.machines[THREE].host
    if name == "k3s":  # The other host has a newer version already.
        other.shell("mkdir -p /etc/rancher; echo version v1.34.1+k3s1 >/etc/rancher/disttrain")
    host.shell(do)
    try:
        assert (check_id, place) in between(lan)
        assert {found for found, _ in between(lan)} == {check_id}
    finally:
        host.shell(undo)
        if name == "k3s":
            other.shell("rm -r /etc/rancher")
    assert between(lan) == set()


@pytest.mark.in_depth
def test_name_that_one_host_does_not_know_is_named(lan: Lan) -> None:
    """The doctor names each host that does not find the first machine by the name in `nodeAddress`.

    A host that finds another machine by that name is named too.
    """
    name = "first.example.com"
    plan = lan.doctor_plan()
    plan = replace(plan, expect=replace(plan.expect, node_address=name))
    server, three = lan.lab.host.address, lan.machines[THREE].host

    def found() -> set[tuple[str, str]]:
        results = [result for result in examine(plan).results if result.is_finding]
        return {(r.id, r.place) for r in results if is_of_several(r)}

    three.shell(f"cp /etc/hosts /etc/aside; echo {SERVER_ADDRESS} {name} >>/etc/hosts")
    try:
        assert found() == {("pair-name", f"{TWO} -> {server}")}
        three.shell(f"cp /etc/aside /etc/hosts; echo {address(lan, TWO)} {name} >>/etc/hosts")
        ids = {("pair-name", f"{TWO} -> {server}"), ("pair-name", f"{THREE} -> {server}")}
        assert ids <= found()
    finally:
        three.shell("mv /etc/aside /etc/hosts")


@pytest.mark.in_depth
def test_host_that_cannot_be_asked_is_named_and_the_others_examined(lan: Lan) -> None:
    host = lan.machines[TWO].host
    lose(host)
    try:
        assert between(lan) == {("connection", TWO)}
    finally:
        find_again(host)
    assert between(lan) == set()
