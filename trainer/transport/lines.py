"""Reads from the lines that NCCL has printed how a rank reaches the other ranks.

NCCL prints these lines with NCCL_DEBUG=INFO. Their wording changes from version to version, and a
plugin for the network writes its own lines. What is not known is left empty, and a network that is
not in `KNOWN` keeps the name that NCCL gives it.

This module does no input or output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

SOCKET, IB, ROCE, EFA = "socket", "ib", "roce", "efa"
KNOWN = (SOCKET, IB, ROCE, EFA)
IB_OR_ROCE = "ib-or-roce"
"""The verbs interface, if no line says whether the link is InfiniBand or RoCE."""
LIBFABRIC = "libfabric"
"""The plugin for libfabric, if no line says which provider of libfabric it uses."""
MOST_LINES = 20

_TEXT = re.compile(r"\bNCCL (?:INFO|WARN) (.+)")
_VIA_NET = re.compile(r"\bvia NET/([^/\n]+)/(\d+)(?:\(\d+\))?(\S*)")
_VIA_NET_ALONE = re.compile(r"\bvia NET/(\w+)\s*$")
_VIA_INSIDE = re.compile(r"\bvia ((?:P2P|SHM)/[A-Za-z]+)")
_CHOSEN = re.compile(r"Using network (.+?)\s*$")
_DEVICES = re.compile(r"NET/(IB|Socket) ?: Using (.*)")
_DEVICE = re.compile(r"\[(\d+)\]([^\s:]+):(?:\d+/(IB|RoCE))?")
_NAMED = re.compile(r"NET/(.+?) ?: GPU Direct RDMA \w+ for HCA (\d+) '([^']+)'")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w-]+)")
_COMMUNICATOR = re.compile(r"comm \S+ rank (\d+) n[rR]anks (\d+)(?: nNodes (\d+))?")
_VERBS = re.compile(r"IB|IBext\w*|NCCL RDMA Plugin\b.*")
_REASON = re.compile(
    r"No device found|No plugin found|Could not find: \S*net|Failed to open libibverbs"
    r"|No eligible providers|Unable to find a protocol|fi_getinfo|Could not find any optimal"
    r"|cannot open shared object|version .\S+ not found|Failed to initialize NET plugin"
    r"|Plugin name set by env"
    r"|NCCL_(?:NET|NET_PLUGIN|IB_HCA) set by|NCCL_IB_DISABLE set by environment to [1-9]"
)


@dataclass(frozen=True)
class Transport:
    """How one rank reaches the other ranks, as far as it is known.

    Args:
        networks: The networks to the ranks of other machines: names of `KNOWN`, or NCCL's own
            names. Empty if not known. There are several if not all connections use the same one.
        devices: The names of the network devices, as far as the lines have them.
        has_gpu_direct: Whether the network reads the GPU's memory (GPUDirect RDMA); None if no line
            says it.
        inside: The ways to ranks of the same machine, such as `P2P/CUMEM` or `SHM/direct`.
        is_used: Whether a line shows a connection by the network. If not, `networks` is only what
            NCCL has chosen.
        rank, ranks, machines: The number of this rank, and the numbers of ranks and machines, in
            the first of the largest groups of ranks; None if no line says it.
        reasons: The lines that may show why NCCL uses this network.
        library: `nccl` or `gloo`.
    """

    networks: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    has_gpu_direct: bool | None = None
    inside: tuple[str, ...] = ()
    is_used: bool = False
    rank: int | None = None
    ranks: int | None = None
    machines: int | None = None
    reasons: tuple[str, ...] = ()
    library: str = "nccl"


def read_transport(lines: Iterable[str]) -> Transport:
    """Read the transport of one process from its lines.

    Args:
        lines: All lines that the process has printed; lines that are not NCCL's are ignored.
    """
    used, chosen = list[tuple[str, int | None, bool]](), list[str]()
    listed, links = dict[str, dict[int, str]](), dict[int, str]()
    providers, inside, reasons = list[str](), list[str](), list[str]()
    group: tuple[int, int] | None = None
    machines: int | None = None
    for line in lines:
        if not (found := _TEXT.search(line)):
            continue
        text = found[1]
        if via := _VIA_NET.search(text):
            used.append((via[1], int(via[2]), "/GDRDMA" in via[3]))
        elif via := _VIA_NET_ALONE.search(text):
            used.append((via[1], None, False))
        elif via := _VIA_INSIDE.search(text):
            inside.append(via[1])
        elif named := _CHOSEN.match(text):
            chosen.append(named[1])
        elif named := _DEVICES.match(text):
            for number, device, link in _DEVICE.findall(named[2]):
                listed.setdefault(named[1], {})[int(number)] = device
                if named[1] == "IB" and link:
                    links[int(number)] = link.lower()
        elif named := _NAMED.match(text):
            listed.setdefault(named[1], {}).setdefault(int(named[2]), named[3])
        elif named := _PROVIDER.match(text):
            providers.append(named[1])
        elif member := _COMMUNICATOR.search(text):
            rank, ranks = int(member[1]), int(member[2])
            if group is None or ranks > group[1]:
                group, machines = (rank, ranks), None
            if member[3] and (rank, ranks) == group:
                machines = int(member[3])
        if _REASON.search(text):
            reasons.append(text.strip())
    names = used or [(name, None, False) for name in chosen]
    networks = [_network(name, number, links, providers) for name, number, _ in names]
    devices = list[str]()
    for name, number, _ in names:
        known = listed.get("IB" if _VERBS.fullmatch(name) else name, {})
        devices += [d for n, d in sorted(known.items()) if number is None or n == number]
    return Transport(
        networks=tuple(dict.fromkeys(networks)),
        devices=tuple(dict.fromkeys(devices)),
        has_gpu_direct=any(direct for _, _, direct in used) if used else None,
        inside=tuple(dict.fromkeys(inside)),
        is_used=bool(used),
        rank=group[0] if group else None,
        ranks=group[1] if group else None,
        machines=machines,
        reasons=tuple(dict.fromkeys(reasons))[:MOST_LINES],
    )


def _network(name: str, number: int | None, links: dict[int, str], providers: list[str]) -> str:
    """Return the name of a network.

    Args:
        name: NCCL's name of the network.
        number: The number of the device; None if no connection was seen.
        links: The kind of link, `ib` or `roce`, by the number of the device.
        providers: The providers of libfabric that lines name.
    """
    if name == "Socket":
        return SOCKET
    if name.endswith("Libfabric"):
        kinds = set(providers)
        if len(kinds) != 1:
            return LIBFABRIC
        (provider,) = kinds
        return EFA if provider == "efa" else f"{LIBFABRIC}-{provider}"
    if not _VERBS.fullmatch(name):
        return name
    if number in links:
        return links[number]
    kinds = set(links.values())
    return kinds.pop() if len(kinds) == 1 else IB_OR_ROCE
