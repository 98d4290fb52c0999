"""Which machines do not acknowledge what a process sends to them, as the kernel counts (Linux).

Who waits in a collective cannot tell a slow peer from one whose link is dead: no connection breaks
for many minutes. But the kernel sends again what nobody acknowledges, and shows how often in
/proc/PID/net/tcp (proc(5)). A stopped process is no such peer: its kernel acknowledges for it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

RESENT = 3  # times in a row: a packet that is lost once comes through the next time
ASKED = 2  # times in a row without an answer, by keep-alive
_ESTABLISHED = "01"
_MOST = 16  # addresses that are told
_TABLES = ("tcp", "tcp6")


@dataclass(frozen=True)
class Connections:
    """Of one process, to other machines.

    Args:
        own: addresses at which this end of them is.
        silent: addresses of peers that do not acknowledge what was sent.
    """

    own: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


def connections_of(pid: int) -> Connections:
    """The connections of a process; none where the system does not show them."""
    tables, sockets = list[str](), set[str]()
    for name in _TABLES:
        with suppress(OSError):
            tables.append(Path(f"/proc/{pid}/net/{name}").read_text())
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    sockets.add(target[len("socket:[") : -1])
    return read_tables(tables, sockets)


def read_tables(tables: Iterable[str], sockets: Collection[str]) -> Connections:
    """From the kernel's tables. Pure.

    Args:
        tables: texts of /proc/PID/net/tcp and tcp6.
        sockets: inodes of the process's own ones; the tables have those of all processes.
    """
    own, silent = dict[str, None](), dict[str, None]()
    for table in tables:
        for line in table.splitlines()[1:]:
            columns = line.split()
            if len(columns) < 10 or columns[3] != _ESTABLISHED or columns[9] not in sockets:
                continue
            here, there = _address(columns[1]), _address(columns[2])
            if _is_loopback(there):
                continue
            own[here] = None
            if int(columns[6], 16) >= RESENT or int(columns[8]) >= ASKED:
                silent[there] = None
    return Connections(tuple(own)[:_MOST], tuple(silent)[:_MOST])


def is_silent(connection: socket.socket) -> bool:
    """Whether the peer of an own connection does not acknowledge; False where nobody can say."""
    if not hasattr(socket, "TCP_INFO"):
        return False
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    except OSError:
        return False
    return info[2] >= RESENT or info[3] >= ASKED  # tcpi_retransmits, tcpi_probes


def _address(column: str) -> str:
    """`0100007F:1F90`: words in the machine's own byte order, and the port."""
    digits = column.partition(":")[0]
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    data = struct.pack(f"={len(words)}I", *words)
    if len(words) == 1:
        return socket.inet_ntop(socket.AF_INET, data)
    return socket.inet_ntop(socket.AF_INET6, data).removeprefix("::ffff:")


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
