"""The doctor on a test host over SSH finds nothing on a clean one, and names each fault by its id.

Each fault must give exactly one finding.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.node.lab import DATA_ROOT, Lab
from tests.node.rootfs import PASSWORD

ENVIRONMENT = "/etc/default/k3s"
NO_PROXY = "10.42.0.0/16,10.43.0.0/16,.svc,.cluster.local,127.0.0.1,localhost"


@dataclass(frozen=True)
class Fault:
    """A fault of a host, with k3s on it or without, and the words by which the doctor names it.

    `make` and `undo` are shell texts that make the fault and remove it.
    """

    check_id: str
    words: str
    make: str = "true"
    undo: str = "true"
    with_k3s: bool = False
    expect: Mapping[str, Any] = field(default_factory=dict[str, Any])


def mounted(where: str, options: str) -> str:
    """Return a shell text that mounts a file system in memory over a folder."""
    return f"mkdir -p {where}; mount -t tmpfs -o {options} tmpfs {where}"


FAULTS = (
    Fault("disk-tmp", "/var/tmp: 0.0 GiB free", mounted("/var/tmp", "size=20m"), "umount /var/tmp"),
    Fault(
        "inodes",
        "/var/tmp: 0 inodes left",
        mounted("/var/tmp", "size=64g,nr_inodes=1"),
        "umount /var/tmp",
    ),
    Fault(
        "data-root",
        "is in memory",
        mounted(DATA_ROOT, "size=64g"),
        f"umount {DATA_ROOT}; rmdir {DATA_ROOT}",
    ),
    Fault("data-root", "is a file", f"touch {DATA_ROOT}", f"rm {DATA_ROOT}"),
    Fault("data-root", "is a link", f"ln -s /srv {DATA_ROOT}", f"rm {DATA_ROOT}"),
    Fault(
        "data-root",
        "read-only mount",
        f"mkdir {DATA_ROOT}; mount --bind {DATA_ROOT} {DATA_ROOT}; "
        f"mount -o remount,bind,ro {DATA_ROOT}",
        f"umount {DATA_ROOT}; rmdir {DATA_ROOT}",
    ),
    Fault(
        "default-route",
        "no default route",
        "ip route del default",
        "ip route add default via 203.0.113.255 dev out0",
    ),
    Fault(
        "cidr-overlap",
        "10.42.7.0/24 to out0, inside the cluster's 10.42.0.0/16",
        "ip route add 10.42.7.0/24 dev out0",
        "ip route del 10.42.7.0/24",
    ),
    Fault(
        "node-address",
        "192.0.2.7 is not an address of this host",
        expect={"node_address": "192.0.2.7"},
    ),
    Fault(
        "node-interface",
        "this host has no network interface ib7; it has lo ",
        expect={"node_interface": "ib7"},
    ),
    Fault(
        "node-interface",
        "the network interface idle0 is off",
        "ip link add idle0 type bridge; ip address add 192.0.2.99/32 dev idle0",
        "ip link del idle0",
        expect={"node_interface": "idle0"},
    ),
    Fault("dns", "cannot resolve k3s.invalid", expect={"https_probe": "https://k3s.invalid/"}),
    Fault("way-out", "nobody listens there", expect={"https_probe": "https://127.0.0.1:9/"}),
    Fault(
        "proxy-reachable",
        "https proxy http://127.0.0.1:9: nobody listens there",
        expect={"https_proxy": "http://127.0.0.1:9", "no_proxy": f"{NO_PROXY},0.0.0.0/0"},
    ),
    Fault(
        "firewall",
        "ufw is active without a rule for 10.42.0.0/16, 10.43.0.0/16",
        "mkdir -p /etc/ufw; echo ENABLED=yes >/etc/ufw/ufw.conf",
        "rm /etc/ufw/ufw.conf",
    ),
    Fault(
        "other-kubernetes",
        "/etc/kubernetes/kubelet.conf",
        "mkdir /etc/kubernetes; touch /etc/kubernetes/kubelet.conf",
        "rm -r /etc/kubernetes",
    ),
    Fault(
        "k3s-leftovers",
        "1 mounts of a Kubernetes that is gone",
        "mkdir -p /var/lib/kubelet/pods; mount -t tmpfs tmpfs /var/lib/kubelet/pods",
        "umount /var/lib/kubelet/pods; rm -r /var/lib/kubelet",
    ),
    Fault(
        "k3s-owner",
        "but not by disttrain",
        "mv /etc/rancher/disttrain /root/aside",
        "mv /root/aside /etc/rancher/disttrain",
        with_k3s=True,
    ),
    Fault("k3s-running", "k3s is inactive", "systemctl stop k3s", with_k3s=True),
    Fault("ip-forward", "is 0", "sysctl -w net.ipv4.ip_forward=0", with_k3s=True),
    Fault(
        "no-proxy",
        "NO_PROXY of k3s' environment file lacks 10.43.0.0/16",
        f"echo NO_PROXY={NO_PROXY.replace('10.43.0.0/16,', '')} >{ENVIRONMENT}",
        f"rm {ENVIRONMENT}",
        with_k3s=True,
    ),
    Fault(
        "proxy-of-k3s",
        "k3s runs with the proxy http://proxy.example:3128",
        f"printf 'HTTPS_PROXY=http://me:hunter2@proxy.example:3128\\nNO_PROXY={NO_PROXY}\\n' "
        f">{ENVIRONMENT}",
        f"rm {ENVIRONMENT}",
        with_k3s=True,
    ),
)


@contextlib.contextmanager
def present(lab: Lab, fault: Fault) -> Iterator[None]:
    """Let the host have the fault during the block."""
    if fault.with_k3s:
        lab.install_by_hand()
    lab.host.shell(fault.make)
    try:
        yield
    finally:
        lab.host.shell(fault.undo)
        if fault.with_k3s:
            lab.remove_by_hand()


def test_clean_host_has_no_finding_before_and_after_k3s_is_installed(lab: Lab) -> None:
    assert lab.doctor() == {}
    assert lab.doctor(user="admin", sudo_password=PASSWORD) == {}
    lab.install_by_hand()
    assert lab.doctor() == {}
    lab.remove_by_hand()
    assert lab.doctor() == {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.check_id}: {fault.words}")
def test_fault_is_named_by_exactly_its_check(lab: Lab, fault: Fault) -> None:
    with present(lab, fault):
        found = lab.doctor(**fault.expect)
    assert list(found) == [fault.check_id], found
    assert fault.words in found[fault.check_id].evidence


@pytest.mark.parametrize(
    ("place", "check_id"),
    [
        (DATA_ROOT, "disk-data"),
        ("/var/lib/rancher", "disk-containerd"),
        ("/usr/local/bin", "disk-system"),
    ],
)
def test_small_disk_is_named_by_what_lies_on_it(lab: Lab, place: str, check_id: str) -> None:
    with lab.small_disk(place):
        found = lab.doctor()
    assert list(found) == [check_id], found


@pytest.mark.parametrize("number", [6443, 10250])
def test_taken_port_is_named(lab: Lab, number: int) -> None:
    lab.take_port(number)
    found = lab.doctor()
    assert list(found) == [f"port-{number}"], found
    assert "taken by python3" in found[f"port-{number}"].evidence
