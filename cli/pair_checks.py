"""Checks of several machines with each other: pure judgements over what each of them has reported.

What one machine sees of another comes from facts-pairs.sh.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from cli.check import PROBE_SECONDS, Fault, Result, error, warning
from cli.facts import Facts
from infra.node.expectations import Expectations

API_PORT, KUBELET_PORT, FLANNEL_PORT, SHARING_PORT = 6443, 10250, 8472, 5001
ETCD_PORTS = (2379, 2380)  # for its clients, and for its members among each other
# File systems that lie on a disk of one machine, as `stat -f -c %T` names them.
OF_ONE_MACHINE = ("ext2/ext3", "xfs", "btrfs", "zfs", "tmpfs", "overlayfs", "f2fs")


@dataclass(frozen=True)
class Machine:
    """A machine that has answered; `sees` is what it reports of the others, by their names."""

    name: str
    facts: Facts
    is_server: bool = False
    sees: Mapping[str, Facts] | None = None


Found: TypeAlias = Iterator[tuple[str, Fault | str]]
"""Where (`a`, or `a -> b`), and a fault or what was seen there."""


@dataclass(frozen=True)
class PairCheck:
    """An id, which never changes its meaning, and the judgement of all machines."""

    id: str
    judge: Callable[[list[Machine], Expectations], Found]

    @property
    def summary(self) -> str:
        """One sentence for people: what is checked, and why it matters."""
        return (self.judge.__doc__ or "").strip().splitlines()[0]


def run_pair_checks(machines: list[Machine], expect: Expectations) -> list[Result]:
    """Run all checks; one that has nothing to look at gives no result."""
    return [
        Result.of(check.id, outcome, PROBE_SECONDS, place)
        for check in PAIR_CHECKS
        for place, outcome in check.judge(machines, expect)
    ]


def questions(*, from_server: bool, to_server: bool, share_images: bool = False) -> list[str]:
    """What one machine has to reach on another, as `protocol.port`.

    Args:
        from_server: the one is the server.
        to_server: the other one is.
        share_images: k3s' embedded registry is on, for which each node listens at two ports.
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
    return asked


def same_machine(machines: list[Machine], _: Expectations) -> Found:
    """Two names stand for two machines; one machine cannot be two nodes."""
    for one, two in _identified(machines):
        fix = "take one of the two out of nodes, or correct its address"
        yield (
            _between(one, two),
            error(f"both names lead to {one.facts.get('node_ip')}, one machine", fix)
            if _same(one, two, "machine_id") and _same(one, two, "node_ip")
            else "two machines",
        )


def machine_id(machines: list[Machine], _: Expectations) -> Found:
    """Every machine has a machine-id of its own; a copied disk brings along another's."""
    for one, two in _identified(machines):
        if _same(one, two, "machine_id") and not _same(one, two, "node_ip"):
            yield (
                _between(one, two),
                warning(
                    f"both have the machine-id {one.facts.get('machine_id')}: one is a copy",
                    "on one of them: rm /etc/machine-id && systemd-machine-id-setup && reboot",
                ),
            )


def same_architecture(machines: list[Machine], _: Expectations) -> Found:
    """All machines have the processor architecture of the one trainer image."""
    for other in machines[1:]:
        first = machines[0]
        if first.facts.get("architecture") != other.facts.get("architecture"):
            yield (
                _between(first, other),
                error(
                    f"{first.facts.get('architecture')} and {other.facts.get('architecture')}",
                    "use machines of one architecture: the trainer image is built for one",
                ),
            )


def same_driver(machines: list[Machine], _: Expectations) -> Found:
    """All machines with GPUs have one version of NVIDIA's driver; NCCL is tested with just that."""
    drivers = [(machine, machine.facts.get("driver")) for machine in machines]
    having = [(machine, driver) for machine, driver in drivers if driver]
    for machine, driver in having[1:]:
        first, wanted = having[0]
        if driver != wanted:
            yield (
                _between(first, machine),
                warning(f"drivers {wanted} and {driver}", "install the same driver on both"),
            )


def gpus_of_all(machines: list[Machine], expect: Expectations) -> Found:
    """The machines together have GPUs for every pod, each pod's on one machine."""
    if not expect.gpus:
        return
    per_pod = max(expect.gpus // expect.pods, 1)
    found = {machine.name: len(machine.facts.all("gpu_pci")) for machine in machines}
    room = sum(count // per_pod for count in found.values())
    shown = ", ".join(f"{name}: {count}" for name, count in found.items())
    if room < expect.pods:
        yield (
            "all",
            error(
                f"there is room for {room} of {expect.pods} pods with {per_pod} GPUs ({shown})",
                "set gpus, gpusPerPod and pods to what is there, or list more machines in nodes",
            ),
        )
    else:
        yield "all", f"room for {room} pods with {per_pod} GPUs ({shown})"


def data_is_shared(machines: list[Machine], expect: Expectations) -> Found:
    """The data folder is the same one on every machine, where the settings say so."""
    if not expect.shared_data:
        return
    sources = {m.name: m.facts.get("data_source").partition(" ")[::2] for m in machines}
    for machine in machines:
        kind, source = sources[machine.name]
        if kind in OF_ONE_MACHINE:
            yield (
                machine.name,
                error(
                    f"{expect.data_root} lies on a disk of this machine ({source}, {kind}), and "
                    "the pods of other machines would not see what is written there",
                    f"mount the shared file system at {expect.data_root}, or set storage: nfs",
                ),
            )
        elif kind:
            yield machine.name, f"{source}, {kind}"


def api_port(machines: list[Machine], expect: Expectations) -> Found:
    """Every machine reaches the API server, by which its kubelet joins the cluster."""
    yield from _reaching(machines, expect, API_PORT)


def kubelet_port(machines: list[Machine], expect: Expectations) -> Found:
    """The server reaches every kubelet; logs, exec and port forwarding go that way."""
    yield from _reaching(machines, expect, KUBELET_PORT)


def etcd_ports(machines: list[Machine], expect: Expectations) -> Found:
    """Servers reach each other's etcd, which keeps the cluster's data on several of them."""
    for port in ETCD_PORTS:
        yield from _reaching(machines, expect, port)


def flannel_port(machines: list[Machine], expect: Expectations) -> Found:
    """Machines reach each other's UDP port 8472, by which pods talk across machines."""
    for source, target, seen in _seen(machines, expect, f"udp.{FLANNEL_PORT}"):
        fix = f"on {target.name}, allow UDP {FLANNEL_PORT} from {source.name}"
        if has_flannel(source) or has_flannel(target):
            continue  # it takes such packets, and answers none
        yield (
            _way(source, target),
            warning(f"UDP packets to port {FLANNEL_PORT} are lost", fix)
            if seen in ("silent", "unreachable")
            else "they arrive",
        )


def sharing_ports(machines: list[Machine], expect: Expectations) -> Found:
    """Machines reach each other's ports 5001 and 6443, by which they give each other the image."""
    if not expect.embedded_registry:
        return
    for port in (SHARING_PORT, API_PORT):
        for source, target, seen in _seen(machines, expect, f"tcp.{port}"):
            if port == SHARING_PORT or not target.is_server:  # the server's is that of the API
                yield _way(source, target), _reached(source, target, port, seen)


def path_mtu(machines: list[Machine], expect: Expectations) -> Found:
    """Packets of the size that the devices allow pass between machines; others would vanish."""
    for source, target, seen in _seen(machines, expect, "mtu"):
        size = source.facts.get("mtu")
        if seen == "too large":
            yield (
                _way(source, target),
                warning(
                    f"a packet of {size} bytes, which {source.facts.get('device')} allows, is lost",
                    "set one MTU on all machines and on what is between them",
                ),
            )
        elif seen == "fits":
            yield _way(source, target), f"{size} bytes pass"


def has_flannel(machine: Machine) -> bool:
    """Whether the pod network of k3s is there already."""
    return any(route.endswith(" flannel.1") for route in machine.facts.values.get("route", []))


def _reaching(machines: list[Machine], expect: Expectations, port: int) -> Found:
    what = f"tcp.{port}"
    for source, target, seen in _seen(machines, expect, what):
        if what not in questions(from_server=source.is_server, to_server=target.is_server):
            continue
        yield _way(source, target), _reached(source, target, port, seen)


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
    """Each two machines, and what the first one sees of the other; k3s of ours alone needs it."""
    if not expect.provision:
        return
    for source in machines:
        for target in machines:
            if source is not target and source.sees and target.name in source.sees:
                seen = source.sees[target.name].get(what)
                if seen:
                    yield source, target, seen


def _identified(machines: list[Machine]) -> Iterator[tuple[Machine, Machine]]:
    """Each two machines whose machine-id is known."""
    known = [machine for machine in machines if machine.facts.get("machine_id")]
    yield from combinations(known, 2)


def _same(one: Machine, two: Machine, fact: str) -> bool:
    return one.facts.get(fact) == two.facts.get(fact)


def _between(one: Machine, two: Machine) -> str:
    return f"{one.name}, {two.name}"


def _way(source: Machine, target: Machine) -> str:
    return f"{source.name} -> {target.name}"


PAIR_CHECKS = (
    PairCheck("same-machine", same_machine),
    PairCheck("machine-id", machine_id),
    PairCheck("same-architecture", same_architecture),
    PairCheck("same-driver", same_driver),
    PairCheck("gpus-of-all", gpus_of_all),
    PairCheck("data-is-shared", data_is_shared),
    PairCheck("pair-api-port", api_port),
    PairCheck("pair-kubelet-port", kubelet_port),
    PairCheck("pair-etcd-ports", etcd_ports),
    PairCheck("pair-flannel-port", flannel_port),
    PairCheck("pair-sharing-ports", sharing_ports),
    PairCheck("pair-mtu", path_mtu),
)
