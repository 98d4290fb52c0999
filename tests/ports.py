"""Ports for the servers of the tests, which no other program gets while their server starts.

A port that the kernel gives (port 0) and that is closed again belongs to the ports that it gives to
every other program too, also as the own end of a connection. So it may be taken when the server,
which starts a moment later, wants it. These lie below that range, and each worker has its own.
"""

import itertools
import os
import re
import socket
from collections.abc import Iterator

FIRST, PORTS_OF_A_WORKER, WORKERS = 10_000, 1_000, 10
STEP = 20  # a run's ranks meet at one of the 16 ports after its own, see trainer/launch/ports.py


def _of_this_worker() -> Iterator[int]:
    number = re.search(r"\d+", os.environ.get("PYTEST_XDIST_WORKER", "")) or ["-1"]
    first = FIRST + int(number[0]) % WORKERS * PORTS_OF_A_WORKER
    ports = range(first, first + PORTS_OF_A_WORKER, STEP)
    begin = os.getpid() % len(ports)  # two runs of the suite at one time seldom meet
    return itertools.cycle([*ports[begin:], *ports[:begin]])


_ports = _of_this_worker()


def free_port(address: str = "127.0.0.1") -> int:
    """A port of this machine that nobody listens on; each call returns another one."""
    for port in itertools.islice(_ports, PORTS_OF_A_WORKER // STEP):
        try:
            socket.create_server((address, port)).close()
        except OSError:
            continue
        return port
    raise RuntimeError(f"all of this worker's ports from {FIRST} on are taken")
