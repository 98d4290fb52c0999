"""Chooses the TCP ports at which the ranks of a round meet."""

import contextlib
import socket

_STORE_PORTS = 16  # the ports after the master port, which the rounds use in turn


def store_port(master_port: int, number: int) -> int:
    """Return the TCP port at which the ranks of round `number` meet.

    The rounds use the 16 ports after the master port in turn, so that a firewall can allow them. If
    all of them are taken, the result is any free port. With the default master port they lie below
    the range from which Linux takes the ports of outgoing connections, so other processes rarely
    have them.
    """
    for offset in range(_STORE_PORTS):
        port = master_port + 1 + (number - 1 + offset) % _STORE_PORTS
        if port > 65535:
            continue
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    return free_port()


def free_port() -> int:
    """Return a TCP port at which nobody listens right now."""
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])
