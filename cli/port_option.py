"""The option `--port` of the commands that serve a page on this machine."""

import argparse
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from cli.os_words import os_words
from infra.kube.api_server.port_forward import LOOPBACK


def add_port(parser: argparse.ArgumentParser, default: int) -> None:
    """Add the option `--port`."""
    parser.add_argument(
        "--port",
        type=int,
        default=default,
        help=f"port on this machine; 0 for any free one (default: {default})",
    )


@contextmanager
def port_to_have(port: int) -> Iterator[None]:
    """Turn the error of a block that cannot listen on the port into a ValueError that names it."""
    try:
        yield
    except (OSError, OverflowError) as reason:
        words = "it is no port, which is a number from 1 to 65535"
        if isinstance(reason, OSError):
            words = os_words(reason)
        raise ValueError(
            f"--port: {port} cannot be used: {words}. Give another one, or 0 for any that is free"
        ) from None


def check_port(port: int) -> None:
    """Check that a server of this machine can listen on the port.

    Raises:
        ValueError: it cannot now, for instance because another program listens there.
    """
    with port_to_have(port), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers set it
        probe.bind((LOOPBACK, port))
        probe.listen(1)  # with that option two sockets may bind a port, but only one may listen
