"""Makes the network link between the host and a cluster's network namespace.

The link is a veth pair with a /30 of its own: the host has the first address, the node the
second. Nothing else changes on the host: no bridge, no iptables rule, no sysctl, no forwarding.
"""

import ipaddress
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

# RFC 2544 reserves these addresses for tests of network devices, so no network uses them. The
# shared address space 100.64.0.0/10 cannot be used: Tailscale's firewall drops its packets on links
# other than Tailscale's.
POOL = IPv4Network("198.18.0.0/15")
LINK_PREFIX = 30
NODE_LINK = "node0"
POD_CIDR = IPv4Network("10.244.0.0/16")  # only inside the namespaces, so all clusters have it
SERVICE_CIDR = IPv4Network("10.96.0.0/16")
KUBERNETES_SERVICE = SERVICE_CIDR[1]
DNS_SERVICE = SERVICE_CIDR[10]


@dataclass(frozen=True)
class Link:
    """The two addresses of a cluster's link."""

    subnet: IPv4Network

    @property
    def host(self) -> IPv4Address:
        """Address of the host."""
        return self.subnet[1]

    @property
    def node(self) -> IPv4Address:
        """Address of the node, where the API server and CoreDNS listen."""
        return self.subnet[2]


def pods_of(number: int) -> IPv4Network:
    """The addresses of node `number`'s pods, counted from 1; Kubernetes assigns the same ones."""
    return IPv4Network((int(POD_CIDR[0]) + 256 * (number - 1), 24))


def free_subnet(routes: Iterable[IPv4Network], pool: IPv4Network = POOL) -> IPv4Network:
    """The first /30 of the pool that overlaps no route of the host.

    Routes with prefixes shorter than /8 do not count. A default route, or the two halves of it
    that a VPN makes, covers everything, and the kernel prefers the link's more specific route.

    Raises:
        RuntimeError: the host's routes cover the whole pool.
    """
    size = 2 ** (32 - LINK_PREFIX)
    start = int(pool.network_address)
    for route in sorted(route for route in routes if route.prefixlen >= 8):
        if int(route.network_address) >= start + size:
            break  # the gap before this route is wide enough
        end = int(route.broadcast_address) + 1
        start = max(start, -(-end // size) * size)
    if start + size > int(pool.broadcast_address) + 1:
        raise RuntimeError(f"no free /{LINK_PREFIX} in {pool}: the host's routes cover it")
    return IPv4Network((start, LINK_PREFIX))


def host_routes() -> list[IPv4Network]:
    """Destinations of all IPv4 routes of the host except the default routes."""
    listed = _ip("-json", "-4", "route", "show", "table", "all")
    return [
        ipaddress.IPv4Network(route["dst"])
        for route in json.loads(listed or "[]")
        if route["dst"] != "default"
    ]


def connect(host_link: str, namespace_pid: int) -> Link:
    """Make the veth pair from the host to the network namespace of process `namespace_pid`.

    The caller holds the lock of all clusters, because two could otherwise choose the same subnet.
    """
    link = Link(free_subnet(host_routes()))
    peer = ("peer", "name", NODE_LINK, "netns", str(namespace_pid))
    _ip("link", "add", host_link, "type", "veth", *peer)
    _ip("address", "add", f"{link.host}/{LINK_PREFIX}", "dev", host_link)
    _ip("link", "set", host_link, "up")
    inside = ("nsenter", "--target", str(namespace_pid), "--net", "ip")
    _run(*inside, "address", "add", f"{link.node}/{LINK_PREFIX}", "dev", NODE_LINK)
    _run(*inside, "link", "set", NODE_LINK, "up")
    # The kernel needs a route to a Service's address before kube-proxy's rules replace it.
    _run(*inside, "route", "add", str(SERVICE_CIDR), "dev", NODE_LINK)
    return link


def current_link(host_link: str) -> Link | None:
    """The addresses of the link, or None if it does not exist."""
    shown = subprocess.run(
        ["ip", "-json", "-4", "address", "show", "dev", host_link],
        capture_output=True,
        text=True,
        check=False,
    )
    if shown.returncode:
        return None
    addresses = [info for link in json.loads(shown.stdout) for info in link.get("addr_info", ())]
    if not addresses:
        return None
    first = addresses[0]
    return Link(IPv4Network(f"{first['local']}/{first['prefixlen']}", strict=False))


def disconnect(host_link: str) -> None:
    """Remove the link, unless the kernel has already removed it with the namespace."""
    done = subprocess.run(
        ["ip", "link", "delete", host_link], capture_output=True, text=True, check=False
    )
    if done.returncode and Path("/sys/class/net", host_link).exists():
        raise RuntimeError(f"ip link delete {host_link}: {done.stderr.strip()}")


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
