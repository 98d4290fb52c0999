"""Reads from the environment which node of the run this is, and finds its machine's interface.

The variables are those that torchrun reads: PET_NNODES, PET_NPROC_PER_NODE, PET_MASTER_ADDR,
PET_MASTER_PORT, PET_NODE_RANK. Without the last one, the node rank is the index that an Indexed Job
gives to its pods (JOB_COMPLETION_INDEX), or the ordinal at the end of POD_NAME, as a StatefulSet
gives it. DISTTRAIN_POD_STAYS tells the only node of a run that its pod is one of a StatefulSet.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.config import ConfigError

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
STAYS_VARIABLE = "DISTTRAIN_POD_STAYS"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_INTERFACE_ADDRESS = 0x8915  # SIOCGIFADDR of netdevice(7)


@dataclass(frozen=True)
class Node:
    """This node; `is_restarted_when_done` says whether Kubernetes starts its pod again."""

    nnodes: int
    local_ranks: int
    rank: int
    master_address: str
    master_port: int
    is_restarted_when_done: bool = False


def node_from_environment(environment: Mapping[str, str]) -> Node:
    """Read the variables of this node.

    Raises:
        ConfigError: lists every variable that is missing or wrong.
    """
    problems: list[str] = []

    def number(name: str, default: str, least: int) -> int:
        text = environment.get(name, default)
        if text.isdecimal() and int(text) >= least:
            return int(text)
        problems.append(
            f"{name}: {text!r} cannot be used: it is no whole number of {least} or more. "
            "Set such a number."
        )
        return least

    nnodes = number("PET_NNODES", "1", 1)
    local_ranks = number("PET_NPROC_PER_NODE", "1", 1)
    port = number("PET_MASTER_PORT", "29500", 1)
    address = environment.get("PET_MASTER_ADDR", "127.0.0.1" if nnodes == 1 else "")
    if not address:
        problems.append(
            "PET_MASTER_ADDR: it is not set, so this node cannot find node 0. Set it to the host "
            "name or address of node 0."
        )
    ordinal = re.search(r"-(\d+)$", environment.get("POD_NAME", ""))
    is_indexed = INDEX_VARIABLE in environment
    if "PET_NODE_RANK" in environment or nnodes == 1:
        rank = number("PET_NODE_RANK", "0", 0)
    elif is_indexed:
        rank = number(INDEX_VARIABLE, "0", 0)
    elif ordinal:
        rank = int(ordinal[1])
    else:
        rank = 0
        problems.append(
            f"PET_NODE_RANK: it is not set, and POD_NAME {environment.get('POD_NAME', '')!r} does "
            "not end in -<number>, so the rank of this node is not known. Set one of them."
        )
    if rank >= nnodes:
        problems.append(
            f"PET_NODE_RANK: {rank} cannot be used: PET_NNODES is {nnodes}. Set 0 to {nnodes - 1}."
        )
    if problems:
        raise ConfigError(problems)
    stays = not is_indexed and (nnodes > 1 or STAYS_VARIABLE in environment)
    return Node(nnodes, local_ranks, rank, address, port, stays)


def machine_id() -> str:
    """Return an id that all processes on one machine share until the machine is rebooted."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:  # not Linux
        return socket.gethostname()


def interface_of(address: str) -> str | None:
    """Return the name of the network interface with that address; None if it is not found."""
    if ":" in address:
        return _interface_of_ipv6(address, Path("/proc/net/if_inet6"))
    if not sys.platform.startswith("linux"):
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        for _, name in socket.if_nameindex():
            request = name.encode().ljust(256, b"\0")
            try:
                answer = fcntl.ioctl(query.fileno(), _INTERFACE_ADDRESS, request)
            except OSError:  # an interface without an address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None


def _interface_of_ipv6(address: str, table: Path) -> str | None:
    try:
        wanted = socket.inet_pton(socket.AF_INET6, address.partition("%")[0]).hex()
        rows = [line.split() for line in table.read_text().splitlines()]
    except OSError:
        return None
    return next((row[-1] for row in rows if row and row[0] == wanted), None)
