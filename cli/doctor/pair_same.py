"""Checks of what must be equal on all machines, and of what must differ. They are pure."""

from collections.abc import Callable, Iterator
from itertools import combinations

from cli.check import Fault, error, version_tuple, warning
from cli.doctor.host_checks import CLOCK_ERROR_SECONDS, CLOCK_SECONDS
from cli.doctor.pair import Found, Machine, PairCheck, between, identified, one_machine, same
from infra.node.expectations import Expectations

# File systems that are on a disk or in the memory of one machine, as `stat -f -c %T` names them.
OF_ONE_MACHINE = ("ext2/ext3", "xfs", "btrfs", "zfs", "tmpfs", "overlayfs", "f2fs")


def same_machine(machines: list[Machine], _: Expectations) -> Found:
    """Two names mean two machines; one machine cannot be two nodes."""
    for one, two in identified(machines):
        fix = "take one of the two out of nodes, or correct its address"
        yield (
            between(one, two),
            error(f"both names lead to {one.facts.get('node_ip')}, one machine", fix)
            if one_machine(one, two)
            else "two machines",
        )


def machine_id(machines: list[Machine], _: Expectations) -> Found:
    """Each machine has its own /etc/machine-id; a copied disk brings that of another machine."""
    for one, two in identified(machines):
        if same(one, two, "machine_id") and not same(one, two, "node_ip"):
            yield (
                between(one, two),
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
                between(first, other),
                error(
                    f"{first.facts.get('architecture')} and {other.facts.get('architecture')}",
                    "use machines of one architecture: the trainer image is built for one",
                ),
            )


def same_driver(machines: list[Machine], _: Expectations) -> Found:
    """All machines with GPUs have one version of NVIDIA's driver; NCCL is tested like that."""
    yield from _unlike(
        machines,
        lambda machine: machine.facts.get("driver"),
        "drivers",
        "install the same driver on both",
    )


def gpus_of_all(machines: list[Machine], expect: Expectations) -> Found:
    """The machines have enough GPUs for all pods; the GPUs of one pod are on one machine."""
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
    """The data folder is the same one on every machine, if the settings say so."""
    if not expect.shared_data:
        return
    sources = {m.name: m.facts.get("data_source").partition(" ")[::2] for m in machines}
    for machine in machines:
        kind, source = sources[machine.name]
        if kind in OF_ONE_MACHINE:
            yield (
                machine.name,
                error(
                    f"{expect.data_root} is on a disk of this machine ({source}, {kind}), and "
                    "the pods of other machines would not see what is written there",
                    f"mount the shared file system at {expect.data_root}, or set storage: nfs or "
                    "nfs-first-node",
                ),
            )
        elif kind:
            yield machine.name, f"{source}, {kind}"


def same_address(machines: list[Machine], _: Expectations) -> Found:
    """Each machine has its own address for k3s; a bridge may have the same one on several."""
    for one, two in combinations(machines, 2):
        address = one.facts.get("node_ip")
        if address and same(one, two, "node_ip") and not one_machine(one, two):
            yield (
                between(one, two),
                error(
                    f"k3s would take {address} for the address of both "
                    f"({one.facts.get('device')} and {two.facts.get('device')})",
                    "name the network interface between the machines: nodeInterface for the first "
                    "one, interface in its item of nodes for a further one",
                ),
            )


def same_name(machines: list[Machine], expect: Expectations) -> Found:
    """Host names differ, and no name in nodes is the host name of the first machine."""
    for one, two in combinations(machines, 2):
        name = one.facts.get("hostname")
        if not name or one_machine(one, two):
            continue
        if one is machines[0] and two.name == name.lower():
            yield (
                between(one, two),
                error(
                    f"the node of the first machine is called {name}, as its host",
                    f"choose another name than {two.name} in nodes",
                ),
            )
        elif same(one, two, "hostname"):
            # An NFS 4 server identifies a client by its host name, and assigns locks to that name.
            level = error if expect.nfs else warning
            why = "NFS takes them for one client" if expect.nfs else "logs do not tell them apart"
            yield (
                between(one, two),
                level(
                    f"both have the host name {name}: {why}",
                    "on one of them: hostnamectl set-hostname OTHER-NAME, and reboot",
                ),
            )


def same_hardware_address(machines: list[Machine], _: Expectations) -> Found:
    """No two machines have the same MAC address; a switch would mix up their packets."""
    for one, two in combinations(machines, 2):
        address = one.facts.get("mac")
        if address and same(one, two, "mac") and not one_machine(one, two):
            yield (
                between(one, two),
                error(
                    f"{one.facts.get('device')} and {two.facts.get('device')} have the hardware "
                    f"address {address}: one machine is a copy",
                    "give one of the two virtual machines a new hardware address",
                ),
            )


def clocks(machines: list[Machine], _: Expectations) -> Found:
    """The clocks of all machines agree; certificates, leases and logs depend on them."""
    known = [(m, m.facts.number("clock_skew")) for m in machines if m.facts.get("clock_skew")]
    for other, skew in known[1:]:
        first, of_first = known[0]
        apart = abs(skew - of_first)
        level = error if apart > CLOCK_ERROR_SECONDS else warning
        yield (
            between(first, other),
            level(
                f"their clocks are {apart} s apart",
                "on both, turn time synchronisation on: timedatectl set-ntp true (or chronyd)",
            )
            if apart > CLOCK_SECONDS
            else f"within {apart} s",
        )


def same_kernel(machines: list[Machine], _: Expectations) -> Found:
    """All machines have kernels of one series, so that drivers and the network work alike."""
    yield from _unlike(
        machines,
        lambda machine: ".".join(map(str, version_tuple(machine.facts.get("kernel"))[:2])),
        "kernels",
        "install the same release of the system on both",
    )


def same_k3s(machines: list[Machine], expect: Expectations) -> Found:
    """All machines with k3s have the same minor version; a kubelet must not be newer."""
    if expect.provision:
        yield from _unlike(
            machines,
            lambda machine: ".".join(machine.facts.get("k3s_version").split(".")[:2]),
            "k3s",
            "run pulumi up, which brings all machines to k3sVersion",
        )


def same_gpu(machines: list[Machine], _: Expectations) -> Found:
    """All GPUs are of one model; the slowest sets the pace, and the smallest the batch."""
    yield from _unlike(machines, _models, "GPUs", "use machines with one model of GPU")


def same_gpu_count(machines: list[Machine], expect: Expectations) -> Found:
    """Machines with GPUs have the same number; otherwise a lost GPU is noticed late."""
    if any(isinstance(found, Fault) for _, found in gpus_of_all(machines, expect)):
        return  # the fault of gpus-of-all already says how many GPUs each machine has
    yield from _unlike(
        machines,
        lambda machine: str(len(machine.facts.all("gpu_pci")) or ""),
        "numbers of GPUs",
        "look for the missing one: nvidia-smi, lspci -d 10de:, dmesg | grep Xid",
    )


def same_speed(machines: list[Machine], _: Expectations) -> Found:
    """The links of all machines have one speed; an all-reduce is as fast as the slowest."""

    def speed(machine: Machine) -> str:
        found = machine.facts.get("link_speed")  # -1 if the device does not know its speed
        return f"{found} Mb/s" if found.isdigit() and int(found) else ""

    yield from _unlike(
        machines,
        speed,
        "links of",
        "name the fast network interface (nodeInterface, interface in nodes), or look at the cable "
        "and the switch: ethtool DEVICE",
    )


def _models(machine: Machine) -> str:
    named = {row.split(",")[0].strip() for row in machine.facts.all("gpu")}
    on_bus = {row.split()[-1] for row in machine.facts.all("gpu_pci")}
    return " and ".join(sorted(named or on_bus))


def _unlike(
    machines: list[Machine], what: Callable[[Machine], str], words: str, fix: str
) -> Iterator[tuple[str, Fault]]:
    """Yield a warning for each machine that differs from the first one.

    Args:
        machines: the machines. Those of which nothing is known are left out.
        what: returns what is compared of a machine; an empty text if it is not known.
        words: the name of what is compared, for the evidence.
        fix: what to do about a difference.
    """
    known = [(machine, found) for machine in machines if (found := what(machine))]
    for other, found in known[1:]:
        first, wanted = known[0]
        if found != wanted:
            yield between(first, other), warning(f"{words} {wanted} and {found}", fix)


SAME_CHECKS = (
    PairCheck("same-machine", same_machine),
    PairCheck("machine-id", machine_id),
    PairCheck("same-address", same_address),
    PairCheck("same-name", same_name),
    PairCheck("same-hardware-address", same_hardware_address),
    PairCheck("same-architecture", same_architecture),
    PairCheck("same-kernel", same_kernel),
    PairCheck("same-k3s", same_k3s),
    PairCheck("same-driver", same_driver),
    PairCheck("same-gpu", same_gpu),
    PairCheck("same-gpu-count", same_gpu_count),
    PairCheck("same-speed", same_speed),
    PairCheck("gpus-of-all", gpus_of_all),
    PairCheck("data-is-shared", data_is_shared),
    PairCheck("pair-clock", clocks),
)
