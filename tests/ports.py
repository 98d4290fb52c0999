"""Ports for the servers of the tests, which no other program gets while their server starts.

A port that the kernel gives (port 0) and that is closed again belongs to the ports that it gives to
every other program too, also as the own end of a connection. So it may be taken when the server,
which starts a moment later, wants it. These lie below that range, and a process of the tests that
is given one says so to all others by a name that only one of them can have.
"""

import atexit
import itertools
import os
import socket
from collections import deque

STEP = 20  # a run's ranks meet at one of the 16 ports after its own, see trainer/launch/ports.py
PORTS = range(10_000, 20_000, STEP)
HELD = 20  # so many of the newest ports stay this process' own

_begin = os.getpid() % len(PORTS)
_next_ports = itertools.cycle([*PORTS[_begin:], *PORTS[:_begin]])
_names = deque[socket.socket]()


@atexit.register
def _give_back() -> None:
    """An open socket at a process' end is a warning of Python's."""
    while _names:
        _names.popleft().close()


def free_port(address: str = "127.0.0.1") -> int:
    """A port of this machine that nobody listens on; each call returns another one."""
    for port in itertools.islice(_next_ports, len(PORTS)):
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            # no file: it goes with this process
            name.bind(f"\0disttrain-test-port-{port}")
            socket.create_server((address, port)).close()
        except OSError:
            name.close()
            continue
        _names.append(name)
        if len(_names) > HELD:
            _names.popleft().close()
        return port
    raise RuntimeError(f"all ports of the tests, from {PORTS[0]} to {PORTS[-1]}, are taken")
