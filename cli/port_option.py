"""The option `--port` of commands that show a page of this machine."""

import argparse
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from cli.os_words import os_words
from infra.kube.api_server.port_forward import HERE


def add_port(parser: argparse.ArgumentParser, default: int) -> None:
    """Add the option."""
    parser.add_argument(
        "--port",
        type=int,
        default=default,
        help=f"port on this machine; 0 for any free one (default: {default})",
    )


@contextmanager
def port_to_have(port: int) -> Iterator[None]:
    """Raises ValueError, which names the port: the block could not listen there."""
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
    """Raises ValueError: nobody can listen there now."""
    with port_to_have(port), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers here have it
        probe.bind((HERE, port))
        probe.listen(1)  # two may bind a port with that option, but only one may listen
