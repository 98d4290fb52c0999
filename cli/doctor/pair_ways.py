"""Checks of the network between machines: ports, MTU, latency, names and routes. They are pure.

The facts about what one machine sees of another come from facts-pairs.sh.
"""

import ipaddress
from collections.abc import Iterator

from cli.check import Fault, error, warning
from cli.doctor.pair import Found, Machine, PairCheck, way
from infra.node.expectations import FIRST_NODE, Expectations

API_PORT, KUBELET_PORT, FLANNEL_PORT, SHARING_PORT = 6443, 10250, 8472, 5001
NFS_PORT = 2049
ETCD_PORTS = (2379, 2380)  # for clients of etcd, and between the members of etcd
# The highest latency without a warning. In one rack it is 0.1 ms, and each all-reduce needs several
# transfers one after the other.
MOST_MILLISECONDS = 5.0


def ports_to_reach(
    *, from_server: bool, to_server: bool, share_images: bool = False, to_data: bool = False
) -> list[str]:
    """Return the ports that one machine has to reach on another, as `protocol.port`.

    Args:
        from_server: whether the first machine is a server of k3s.
        to_server: whether the other machine is a server of k3s.
        share_images: whether k3s' embedded registry is on, for which each node listens at two
            ports.
        to_data: whether the other machine serves the data by NFS.
    """
    asked = [f"udp.{FLANNEL_PORT}"]
    if share_images:
        asked.append(f"tcp.{SHARING_PORT}")
    if to_server or share_images:
        asked.append(f"tcp.{API_PORT}")
    if from_server:
        asked.append(f"tcp.{KUBELET_PORT}")
    if from_server and to_server:
        asked += [f"tcp.{port}" for port in ETCD_PORTS]
    if to_data:
        asked.append(f"tcp.{NFS_PORT}")
    return asked


def api_port(machines: list[Machine], expect: Expectations) -> Found:
    """Every machine reaches the API server, through which its kubelet joins the cluster."""
    yield from _reaching(machines, expect, API_PORT)


def kubelet_port(machines: list[Machine], expect: Expectations) -> Found:
    """Each server reaches port 10250 of all machines, by which it gets logs and runs exec."""
    yield from _reaching(machines, expect, KUBELET_PORT)


def etcd_ports(machines: list[Machine], expect: Expectations) -> Found:
    """Servers reach each other's etcd, which keeps the cluster's data on several of them."""
    for port in ETCD_PORTS:
        yield from _reaching(machines, expect, port)


def flannel_port(machines: list[Machine], expect: Expectations) -> Found:
    """Machines reach each other's UDP port 8472, which carries traffic between their pods."""
    for source, target, seen in _seen(machines, expect, f"udp.{FLANNEL_PORT}"):
        fix = f"on {target.name}, allow UDP {FLANNEL_PORT} from {source.name}"
        if has_flannel(source) or has_flannel(target):
            continue  # flannel uses the port then, and answers no packets of the doctor
        yield (
            way(source, target),
            warning(f"UDP packets to port {FLANNEL_PORT} are lost", fix)
            if seen in ("silent", "unreachable")
            else "they arrive",
        )


def sharing_ports(machines: list[Machine], expect: Expectations) -> Found:
    """Machines reach each other's ports 5001 and 6443, through which they share the image."""
    if not expect.embedded_registry:
        return
    for port in (SHARING_PORT, API_PORT):
        for source, target, seen in _seen(machines, expect, f"tcp.{port}"):
            # On servers the check pair-api-port examines port 6443.
            if port == SHARING_PORT or not target.is_server:
                yield way(source, target), _reached(source, target, port, seen)


def path_mtu(machines: list[Machine], expect: Expectations) -> Found:
    """Packets of the largest allowed size pass between machines; otherwise they are lost."""
    for source, target, seen in _seen(machines, expect, "mtu"):
        size = source.facts.get("mtu")
        if seen == "too large":
            yield (
                way(source, target),
                warning(
                    f"a packet of {size} bytes, which {source.facts.get('device')} allows, is lost",
                    "set one MTU on all machines and on what is between them",
                ),
            )
        elif seen == "fits":
            yield way(source, target), f"{size} bytes pass"


def nfs_port(machines: list[Machine], expect: Expectations) -> Found:
    """Every machine reaches port 2049 of the first one, if that serves the data by NFS."""
    if expect.nfs != FIRST_NODE:
        return
    for source, target, seen in _seen(machines, expect, f"tcp.{NFS_PORT}"):
        if target is machines[0]:
            yield way(source, target), _reached(source, target, NFS_PORT, seen)


def name_of_machine(machines: list[Machine], expect: Expectations) -> Found:
    """A machine's name in the settings leads the other machines to that machine."""
    for source, target, seen in _seen(machines, expect, "name"):
        name, *found = seen.split()
        own = target.facts.values.get("address", [])
        if not found:
            yield (
                way(source, target),
                error(
                    f"{source.name} does not know the name {name}",
                    f"set nodeAddress to an address, or add {name} to DNS or to /etc/hosts there",
                ),
            )
        elif own and not set(found) & set(own):
            yield (
                way(source, target),
                warning(
                    f"{source.name} takes {name} for {', '.join(found)}, which is no address of "
                    f"{target.name}",
                    f"correct {name} in DNS or in /etc/hosts there; behind NAT this is fine",
                ),
            )
        else:
            yield way(source, target), ", ".join(found)


def own_address_on_the_way(machines: list[Machine], expect: Expectations) -> Found:
    """A machine's packets to another have the address that k3s uses for the machine."""
    for source, target, seen in _seen(machines, expect, "source"):
        address, _, device = seen.partition(" ")
        own = source.facts.get("node_ip")
        if not own or ipaddress.ip_address(address).version != ipaddress.ip_address(own).version:
            continue
        named = source.facts.get("device")
        key = "nodeInterface" if source is machines[0] else f"interface of {source.name} in nodes"
        yield (
            way(source, target),
            warning(
                f"{source.name} sends packets to {target.name} from {address} (interface "
                f"{device}), but k3s would know {source.name} by {own} (interface {named}). Pods "
                "would then use another network than the machines, or not reach each other",
                f"if {device} is right, set {key} to {device}; if {named} is right, change the "
                f"routes of {source.name} so that packets to {target.name} leave by {named}",
            )
            if address != own
            else f"{address} by {device}",
        )


def latency(machines: list[Machine], expect: Expectations) -> Found:
    """The latency between two machines is low; each step waits for many packets."""
    for source, target, seen in _seen(machines, expect, "milliseconds"):
        yield (
            way(source, target),
            warning(
                f"a packet and its answer take {seen} ms, the fastest of several",
                "use machines of one place, and a way between them without a tunnel",
            )
            if float(seen) > MOST_MILLISECONDS
            else f"{seen} ms",
        )


def has_flannel(machine: Machine) -> bool:
    """Whether the pod network of k3s (flannel) already exists on the machine."""
    return any(route.endswith(" flannel.1") for route in machine.facts.values.get("route", []))


def _reaching(machines: list[Machine], expect: Expectations, port: int) -> Found:
    what = f"tcp.{port}"
    for source, target, seen in _seen(machines, expect, what):
        if what not in ports_to_reach(from_server=source.is_server, to_server=target.is_server):
            continue
        yield way(source, target), _reached(source, target, port, seen)


def _reached(source: Machine, target: Machine, port: int, seen: str) -> Fault | str:
    if seen not in ("silent", "unreachable"):
        return seen
    words = "packets are lost" if seen == "silent" else "the way is refused"
    return error(
        f"port {port} cannot be reached: {words}",
        f"allow TCP {port} from {source.name} in the firewall of {target.name}",
    )


def _seen(
    machines: list[Machine], expect: Expectations, what: str
) -> Iterator[tuple[Machine, Machine, str]]:
    """Yield each ordered pair of machines, with the fact that the first reports about the second.

    Nothing is yielded for an existing cluster, because only disttrain's own k3s needs these ports.
    """
    if not expect.provision:
        return
    for source in machines:
        for target in machines:
            if source is not target and source.sees and target.name in source.sees:
                sees = source.sees[target.name]
                seen = sees.get(what)
                # A name without an address could not be asked; the check pair-name reports it.
                if seen and (what == "name" or len(sees.get("name", "- -").split()) > 1):
                    yield source, target, seen


WAY_CHECKS = (
    PairCheck("pair-name", name_of_machine),
    PairCheck("pair-source", own_address_on_the_way),
    PairCheck("pair-api-port", api_port),
    PairCheck("pair-kubelet-port", kubelet_port),
    PairCheck("pair-etcd-ports", etcd_ports),
    PairCheck("pair-flannel-port", flannel_port),
    PairCheck("pair-sharing-ports", sharing_ports),
    PairCheck("pair-nfs-port", nfs_port),
    PairCheck("pair-mtu", path_mtu),
    PairCheck("pair-latency", latency),
)
