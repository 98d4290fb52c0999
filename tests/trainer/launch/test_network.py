"""The ports, interfaces and time limits that the nodes of a run use between them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.lab import free_port, loopback
from tests.trainer.launch.gang import Gang, hello
from trainer.launch.membership import Round
from trainer.launch.node import (
    Node,
    _interface_of_ipv6,  # pyright: ignore[reportPrivateUsage]
    interface_of,
)
from trainer.launch.ports import store_port
from trainer.launch.rank_environment import rank_environment
from trainer.launch.signed_lines import SignedLines


@pytest.fixture
def gang() -> Iterator[Gang]:
    gang = Gang()
    yield gang
    gang.close()


@pytest.mark.parametrize("is_server", [True, False])
def test_unacknowledged_lines_are_given_up_after_30_seconds(is_server: bool) -> None:
    """A connection breaks 30 s after its peer has died, also while something is on its way.
    Keep-alive alone works only on a silent connection, and unacknowledged data is repeated for
    about 15 minutes.
    """
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
    """Return the environment of the first rank in this round, given the variables `in_common`."""
    return rank_environment(in_common, Node(nnodes, 1, 0, "localhost", 29500), here, 0)


def test_ranks_use_the_interface_by_which_nodes_meet() -> None:
    """Gloo and NCCL use the interface by which the nodes have met, unless a variable names another
    one. Where a host's own name is 127.0.1.1, gloo would otherwise listen there alone, and no other
    machine could reach it.
    """
    here = Round(1, "127.0.0.1", 29501, (0, 1), 0, 2, 1, own_address="127.0.0.1")
    found = environment_of(here)
    assert found["GLOO_SOCKET_IFNAME"] == found["NCCL_SOCKET_IFNAME"] == loopback()
    assert environment_of(here, GLOO_SOCKET_IFNAME="eth7")["GLOO_SOCKET_IFNAME"] == "eth7"
    alone = Round.alone(1, 29501, local_ranks=1)
    assert "NCCL_SOCKET_IFNAME" not in environment_of(alone, nnodes=1)


def test_ranks_share_the_cores_of_their_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank gets its share of the cores: by the ranks of its node, and by those of all nodes on
    the same machine. torch would start as many threads as there are cores in every rank, and they
    would wait for each other. A variable of the user wins.
    """
    here = Round(1, "127.0.0.1", 29501, (0, 1), 0, 6, 4, own_address="127.0.0.1")
    node = Node(2, 3, 0, "localhost", 29500)
    asked = list[tuple[int, int]]()

    def share(local_ranks: int, ranks_on_machine: int) -> int:
        asked.append((local_ranks, ranks_on_machine))
        return 5

    monkeypatch.setattr("trainer.launch.rank_environment.threads_per_rank", share)
    assert rank_environment({}, node, here, 0)["OMP_NUM_THREADS"] == "5"
    assert asked == [(3, 4)]
    given = {"OMP_NUM_THREADS": "7"}
    assert rank_environment(given, node, here, 0)["OMP_NUM_THREADS"] == "7"


def test_node_0_takes_the_address_that_others_reach(gang: Gang) -> None:
    """Node 0 takes part with the address that other machines reach, and not with the one by which
    it reaches itself, when another machine takes part.
    """
    gang.coordinator._address_for_other_machines = lambda: "192.0.2.7"  # pyright: ignore
    members = gang.join_all(hello(0), hello(1, machine="two"), hello(2, machine="three"))
    assert members[0].round.own_address == "192.0.2.7"


def test_interfaces_are_found_by_their_address(tmp_path: Path) -> None:
    assert interface_of("127.0.0.1") == loopback()
    assert interface_of("192.0.2.1") is None  # an address of documentation, which no machine has
    table = tmp_path / "if_inet6"
    table.write_text("fe80000000000000000000000000abcd 02 40 20 80     eth0\n")
    assert _interface_of_ipv6("fe80::abcd%eth0", table) == "eth0"
    assert _interface_of_ipv6("fe80::1", table) is None


def test_rounds_meet_at_the_ports_after_the_master_port() -> None:
    """The ranks of a round meet at one of the 16 ports after the master port, in turn, and at the
    next one where it is taken. Otherwise a firewall would have to allow every port.
    """
    master = free_port()
    ports = [store_port(master, number) for number in range(1, 18)]
    assert set(ports) <= set(range(master + 1, master + 17))
    assert ports[16] == ports[0]
    with socket.create_server(("", ports[1])):
        assert store_port(master, 2) in set(range(master + 1, master + 17)) - {ports[1]}
