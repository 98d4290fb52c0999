"""Gives ports to the servers of the tests, which no other program takes while they start.

If a test lets the kernel choose a port (port 0) and closes it again, the kernel may give that port
to any other program, even as the local end of a connection. So the port may be taken when the
server starts a moment later. The ports given here are below the kernel's range. A process of the
tests reserves a port by an abstract socket name, which only one process can have.
"""

import atexit
import itertools
import os
import socket
from collections import deque

STEP = 20  # a run's ranks meet at one of the 16 ports after its own, see trainer/launch/ports.py
PORTS = range(10_000, 20_000, STEP)
HELD = 20  # how many of its newest ports a process keeps reserved

_begin = os.getpid() % len(PORTS)
_next_ports = itertools.cycle([*PORTS[_begin:], *PORTS[:_begin]])
_names = deque[socket.socket]()


@atexit.register
def _give_back() -> None:
    """Close the sockets, because Python warns of sockets that are open at a process' end."""
    while _names:
        _names.popleft().close()


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port of this machine on which no program listens; each call returns another port."""
    for port in itertools.islice(_next_ports, len(PORTS)):
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            # An abstract name is no file, so it ends with this process.
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
