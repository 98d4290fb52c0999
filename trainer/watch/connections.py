"""Finds the machines that do not acknowledge what a process sends to them (Linux only).

A rank that waits in a collective cannot tell a slow peer from one whose link is dead: no connection
breaks for many minutes. But the kernel sends again what is not acknowledged, and shows how often in
/proc/PID/net/tcp (proc(5)). A stopped process is no such peer: its kernel acknowledges for it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

RESENT = 3  # how often in a row: a packet that is lost once arrives the next time
ASKED = 2  # how many keep-alive probes in a row had no answer
ESTABLISHED = "01"
_MOST = 16  # how many addresses are returned
_TABLES = ("tcp", "tcp6")


@dataclass(frozen=True)
class Connections:
    """The TCP connections of one process to other machines.

    Args:
        own: The addresses of this machine in them.
        silent: The addresses of the peers that do not acknowledge what was sent.
    """

    own: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


def connections_of(pid: int) -> Connections:
    """Return the connections of a process; none if the system does not show them."""
    return read_tables(tables_of(pid), sockets_of(pid))


def tables_of(pid: int) -> list[str]:
    """Return the tables of all connections of the network in which a process is.

    There are none if the system does not show them.
    """
    tables = list[str]()
    for name in _TABLES:
        with suppress(OSError):
            tables.append(Path(f"/proc/{pid}/net/{name}").read_text())
    return tables


def sockets_of(pid: int) -> set[str]:
    """Return the inodes of the sockets of a process; none if the system does not show them."""
    sockets = set[str]()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    sockets.add(target[len("socket:[") : -1])
    return sockets


def read_tables(tables: Iterable[str], sockets: Collection[str]) -> Connections:
    """Return the connections of a process from the kernel's tables. This function is pure.

    Args:
        tables: The texts of /proc/PID/net/tcp and tcp6, which have the sockets of all processes.
        sockets: The inodes of the sockets of the process itself.
    """
    own, silent = dict[str, None](), dict[str, None]()
    for columns in rows_of(tables):
        if columns[3] != ESTABLISHED or columns[9] not in sockets:
            continue
        here, there = address_of(columns[1]), address_of(columns[2])
        if is_loopback(there):
            continue
        own[here] = None
        if int(columns[6], 16) >= RESENT or int(columns[8]) >= ASKED:
            silent[there] = None
    return Connections(tuple(own)[:_MOST], tuple(silent)[:_MOST])


def rows_of(tables: Iterable[str]) -> list[list[str]]:
    """Return the columns of each connection in the kernel's tables; cut rows are left out."""
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return [columns for columns in rows if len(columns) >= 10]


def is_silent(connection: socket.socket) -> bool:
    """Whether the peer of this process's connection does not acknowledge what was sent.

    The result is False if the system does not show it.
    """
    if not hasattr(socket, "TCP_INFO"):
        return False
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    except OSError:
        return False
    return info[2] >= RESENT or info[3] >= ASKED  # tcpi_retransmits, tcpi_probes


def address_of(column: str) -> str:
    """Return the address in a column such as `0100007F:1F90`, which also has the port.

    The address is written as 32-bit words in the machine's own byte order.
    """
    digits = column.partition(":")[0]
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    data = struct.pack(f"={len(words)}I", *words)
    if len(words) == 1:
        return socket.inet_ntop(socket.AF_INET, data)
    return socket.inet_ntop(socket.AF_INET6, data).removeprefix("::ffff:")


def is_loopback(address: str) -> bool:
    """Whether an address leads to the machine itself."""
    return address.startswith("127.") or address == "::1"
