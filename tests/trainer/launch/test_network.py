"""Which ports, interfaces and time limits the nodes of a run use between them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.lab import free_port, loopback
from tests.trainer.launch.gang import Gang, hello
from trainer.launch.membership import Round
from trainer.launch.messages import SignedLines
from trainer.launch.node import (
    Node,
    _interface_of_ipv6,  # pyright: ignore[reportPrivateUsage]
    interface_of,
)
from trainer.launch.ports import store_port
from trainer.launch.rank_environment import rank_environment


@pytest.fixture
def gang() -> Iterator[Gang]:
    gang = Gang()
    yield gang
    gang.close()


@pytest.mark.parametrize("is_server", [True, False])
def test_unacknowledged_lines_are_given_up_after_30_seconds(is_server: bool) -> None:
    """C20 of the review: keep-alive finds a dead peer only while nothing is on its way; what was
    sent to it was repeated for about 15 minutes before the connection broke."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = socket.create_connection(server.getsockname())
        line = SignedLines(connection, b"", is_server)
        milliseconds = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        idle, between, questions = (
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        line.close()
    assert milliseconds == 30_000
    assert idle + between * questions == 30


def environment_of(here: Round, nnodes: int = 2, **in_common: str) -> dict[str, str]:
    return rank_environment(in_common, Node(nnodes, 1, 0, "localhost", 29500), here, 0)


def test_ranks_use_the_interface_by_which_nodes_meet() -> None:
    """C21 of the review: where a host's own name is 127.0.1.1, gloo listened there alone unless a
    variable said otherwise, and the ranks of other machines could not reach it."""
    here = Round(1, "127.0.0.1", 29501, (0, 1), 0, 2, 1, own_address="127.0.0.1")
    found = environment_of(here)
    assert found["GLOO_SOCKET_IFNAME"] == found["NCCL_SOCKET_IFNAME"] == loopback()
    assert environment_of(here, GLOO_SOCKET_IFNAME="eth7")["GLOO_SOCKET_IFNAME"] == "eth7"
    alone = Round.alone(1, 29501, local_ranks=1)
    assert "NCCL_SOCKET_IFNAME" not in environment_of(alone, nnodes=1)


def test_node_0_takes_the_address_that_others_reach(gang: Gang) -> None:
    """C21 of the review: node 0 reaches itself by an address of its own machine. Every node gets
    an own address that is not of that kind, where another machine takes part."""
    gang.coordinator._address_for_other_machines = lambda: "192.0.2.7"  # pyright: ignore
    members = gang.join_all(hello(0), hello(1, machine="two"), hello(2, machine="three"))
    assert members[0].round.own_address == "192.0.2.7"


def test_interfaces_are_found_by_their_address(tmp_path: Path) -> None:
    assert interface_of("127.0.0.1") == loopback()
    assert interface_of("192.0.2.1") is None  # for documentation: nobody has it
    table = tmp_path / "if_inet6"
    table.write_text("fe80000000000000000000000000abcd 02 40 20 80     eth0\n")
    assert _interface_of_ipv6("fe80::abcd%eth0", table) == "eth0"
    assert _interface_of_ipv6("fe80::1", table) is None


def test_rounds_meet_at_the_ports_after_the_master_port() -> None:
    """C22 of the review: the ranks met at any free port, which a firewall does not allow and which
    another process could take. They take one of 16 in turn, and the next one where it is taken."""
    master = free_port()
    ports = [store_port(master, number) for number in range(1, 18)]
    assert set(ports) <= set(range(master + 1, master + 17))
    assert ports[16] == ports[0]
    with socket.create_server(("", ports[1])):
        assert store_port(master, 2) in set(range(master + 1, master + 17)) - {ports[1]}
