"""Makes, cuts, slows down and mends the links between the nodes of a cluster.

Each further node has a veth pair to the first node, which routes between the further ones. In the
first node's namespaces the link to node N is called `nodeN`; on node N the link to the first node
is called `node1`. The links are not visible on the host, and they end with the nodes.
"""

import json
import subprocess
from dataclasses import dataclass

from sandbox.namespaces import Holder
from sandbox.network import POD_CIDR, POOL, Link, pods_of

TO_FIRST = "node1"


def at_first(number: int) -> str:
    """Name of the link to node `number` in the first node's namespaces."""
    return f"node{number}"


def connect_node(first: Holder, first_link: Link, node: Holder, link: Link, number: int) -> None:
    """Make the link between the first node and node `number`, and the routes over it."""
    here = at_first(number)
    disconnect_node(first, number)
    PeerLink(first, node, number).mend()  # an earlier node of this number may have been cut off
    _in(first, "ip", "link", "add", here, *("type", "veth", "peer", "name", TO_FIRST))
    _in(first, "ip", "link", "set", TO_FIRST, "netns", str(node.pid))
    _in(first, "ip", "link", "set", here, "up")
    _in(node, "ip", "link", "set", TO_FIRST, "up")
    # The links have no addresses of their own: nodes are reached by the addresses of their links
    # to the host.
    _route(first, f"{link.node}/32", here, source=first_link)
    _route(first, str(pods_of(number)), here, source=first_link, via=link)
    _route(node, f"{first_link.node}/32", TO_FIRST, source=link)
    for others in (POOL, POD_CIDR):
        _route(node, str(others), TO_FIRST, source=link, via=first_link)
    # Packets for a pod that is gone must not go to the first node, which would send them back.
    _in(node, "ip", "route", "add", "unreachable", str(pods_of(number)))


def disconnect_node(first: Holder, number: int) -> None:
    """Remove the link to a node that has ended, and with it its routes.

    The kernel also removes it, but only some time after the node's last process has ended.
    """
    here = at_first(number)
    if here in _links(first):
        try:
            _in(first, "ip", "link", "delete", here)
        except RuntimeError:
            if here in _links(first):
                raise


def _links(holder: Holder) -> set[str]:
    return {link["ifname"] for link in json.loads(_in(holder, "ip", "-json", "link"))}


@dataclass(frozen=True)
class PeerLink:
    """The link between node `number` and the first node, by which it reaches all other nodes."""

    first: Holder
    node: Holder
    number: int

    def cut(self) -> None:
        """Drop all packets in both directions, as if the cable were pulled."""
        if not self.is_cut:
            for rule in _cut_rules(self.number):
                _in(self.first, "iptables", "--wait", "-t", "mangle", "-I", *rule)

    def mend(self) -> None:
        """Let packets pass again; nothing happens if the link is not cut."""
        if self.is_cut:
            for rule in _cut_rules(self.number):
                _in(self.first, "iptables", "--wait", "-t", "mangle", "-D", *rule)

    @property
    def is_cut(self) -> bool:
        """Whether the link is cut."""
        rules = _in(self.first, "iptables", "--wait", "-t", "mangle", "-S", "PREROUTING")
        return f"-i {at_first(self.number)} " in rules

    def set_rate(self, rate: str | None) -> None:
        """Limit both directions by the kernel's token bucket filter.

        Args:
            rate: the rate as `tc` writes it, such as `10mbit`; None removes the limit.

        Raises:
            RuntimeError: tc refuses the rate, or the kernel has no token bucket filter (tbf).
        """
        for holder, name in ((self.first, at_first(self.number)), (self.node, TO_FIRST)):
            if rate:
                bucket = ("tbf", "burst", "256kb", "latency", "100ms", "rate", rate)
                _in(holder, "tc", "qdisc", "replace", "dev", name, "root", *bucket)
            elif _has_rate(holder, name):
                _in(holder, "tc", "qdisc", "delete", "dev", name, "root")


def _has_rate(holder: Holder, name: str) -> bool:
    found = json.loads(_in(holder, "tc", "-json", "qdisc", "show", "dev", name) or "[]")
    return any(each["kind"] == "tbf" for each in found)


def _cut_rules(number: int) -> list[tuple[str, ...]]:
    name = at_first(number)
    return [
        ("POSTROUTING", "-o", name, "-j", "DROP"),
        ("PREROUTING", "-i", name, "-j", "DROP"),
    ]


def _route(
    holder: Holder, target: str, device: str, *, source: Link, via: Link | None = None
) -> None:
    way = ("via", str(via.node)) if via else ()
    _in(holder, "ip", "route", "add", target, *way, "dev", device, "src", str(source.node))


def _in(holder: Holder, *command: str) -> str:
    """Output of a command in a node's network. Raises RuntimeError with its error text."""
    inside = ["nsenter", "--target", str(holder.pid), "--net", "--", *command]
    done = subprocess.run(inside, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
