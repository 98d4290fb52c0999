"""Peers that do not acknowledge are found in the kernel's tables, and by them the nodes that are
cut off.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.trainer.watch.rank_states import WAITS, four
from trainer.watch.connections import Connections, connections_of, is_silent, read_tables
from trainer.watch.dead_links import dead_links
from trainer.watch.hang import Hang, RankState, from_text, to_text

# As Linux writes it, on a machine with the least significant byte first.
HEAD = "  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode"
OF_OTHERS = "9"
TCP = f"""{HEAD}
   0: 0100007F:7531 0100007F:A3E6 01 00000000:00000000 01:00000014 00000009  0 0 11 1
   1: 01014D0A:D431 03014D0A:A2E1 01 00000148:00000000 01:00000A2C 00000006  0 0 12 1
   2: 01014D0A:D432 02014D0A:A2E1 01 00000000:00000000 00:00000000 00000000  0 0 13 1
   3: 01014D0A:D433 04014D0A:A2E1 01 00000000:00000000 02:00000014 00000000  0 2 14 1
   4: 01014D0A:D434 05014D0A:A2E1 01 00000148:00000000 01:00000A2C 00000007  0 0 {OF_OTHERS} 1
   5: 01014D0A:D435 06014D0A:A2E1 06 00000148:00000000 01:00000A2C 00000007  0 0 15 1
   6: 01014D0A:D436 07014D0A:A2E1 01 00000148:00000000 01:00000A2C 00000002  0 0 16 1
   7: half a line
"""
TCP6 = f"""{HEAD}
   0: 0000000000000000FFFF000001014D0A:D431 0000000000000000FFFF000008014D0A:A2E1 01 00000148:00000000 01:00000A2C 0000000A 0 0 17 1
   1: B80D0120000000000000000001000000:D431 B80D0120000000000000000002000000:A2E1 01 00000148:00000000 01:00000A2C 00000003 0 0 18 1
"""  # noqa: E501
SOCKETS = ("11", "12", "13", "14", "15", "16", "17", "18")


def test_peers_that_do_not_acknowledge_are_found() -> None:
    """Peers that do not acknowledge are found, except on connections of other processes, of this
    machine, that are closed, or that have lost a packet or two.
    """
    assert read_tables([TCP, TCP6], SOCKETS) == Connections(
        ("10.77.1.1", "2001:db8::1"),
        ("10.77.1.3", "10.77.1.4", "10.77.1.8", "2001:db8::2"),
    )
    assert read_tables([], SOCKETS) == Connections()


def test_living_connections_are_not_silent() -> None:
    """A connection is not silent while the other process does not read, because its kernel
    acknowledges.
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        connection.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                connection.send(b"x" * 65536)
        assert not is_silent(connection)
        assert connections_of(os.getpid()).silent == ()
    assert not is_silent(connection)  # a closed connection is not silent either


def cut(*pairs: tuple[int, int], nodes: int = 3) -> list[RankState]:
    """Return the state of a rank on each node, where the first node of each pair does not reach the
    second one.
    """
    return [
        replace(
            WAITS,
            rank=node,
            node=node,
            own=(f"10.0.0.{node}",),
            silent=tuple(f"10.0.0.{there}" for here, there in pairs if here == node),
        )
        for node in range(nodes)
    ]


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (
            [(0, 2), (1, 2)],
            "rank 2 on node 2 is cut off from the other nodes: what is sent there (at 10.0.0.2) "
            "is not acknowledged, as by a dead network card, link or switch, or a machine that is "
            "off; ranks 0, 1 wait for it in the sum of the gradients of step 812",
        ),
        ([(1, 2), (2, 0)], "rank 2 on node 2 is cut off from the other nodes: "),
        ([(2, 0), (2, 1)], "rank 2 on node 2 is cut off from the other nodes: what is sent there "),
        (
            [(1, 2), (2, 1)],
            "nothing arrives any more between node 1 and node 2: what they send is not "
            "acknowledged, as by a dead network card, link or switch, or a machine that is off; "
            "look at the network between them; ranks 0, 1, 2 wait in the sum of the gradients",
        ),
        (
            [(0, 1), (2, 3)],
            "nothing arrives any more between node 0 and node 1; node 2 and the node at 10.0.0.3: ",
        ),
    ],
)
def test_node_in_all_dead_pairs_is_cut_off(pairs: list[tuple[int, int]], words: str) -> None:
    """A node that is in all pairs without a way between them is cut off. If several nodes are, both
    ends of each pair are named, and nobody is blamed.
    """
    states = cut(*pairs)
    assert Hang(states).describe(17.4).startswith(f"no step for 17 s: {words}")
    assert [state.rank for state in Hang(states).culprits] == ([2] if words[:4] == "rank" else [])
    assert from_text(to_text(states)) == states


def test_node_that_node_0_does_not_reach_is_cut_off() -> None:
    """A node that node 0 does not reach is cut off, whatever else is known. Nobody has said where
    its ranks are or whose address is silent.
    """
    words = (
        "no step for 17 s: node 2 is cut off from the other nodes: what is sent there is not "
        "acknowledged, as by a dead network card, link or switch, or a machine that is off; ranks "
        "0, 1 wait for it in the sum of the gradients of step 812"
    )
    for pairs in ((), ((0, 2), (1, 2))):
        assert Hang(cut(*pairs)[:2], [2], [2]).describe(17.4) == words


def test_further_rank_whose_peer_is_cut_off_has_left_out_nothing() -> None:
    """A rank in a later collective than the others is not blamed when a peer is cut off. It came
    there before the link died.
    """
    states = [replace(state, step=813 if state.rank == 0 else 812) for state in cut((0, 2), (1, 2))]
    assert [state.rank for state in Hang(states).culprits] == [2]


def test_all_ranks_of_a_node_are_cut_off() -> None:
    """If a node is cut off, all its ranks are named."""
    states = [
        replace(s, own=(f"10.0.0.{s.node}",), silent=("10.0.0.1",) if s.node != 1 else ())
        for s in [*four(), replace(WAITS, rank=4, node=2)]
    ]
    assert dead_links(states).cut_off == (1,)
    assert "s: ranks 2, 3 on node 1 are cut off from" in Hang(states).describe(17.4)


def test_stopped_rank_is_to_blame_before_its_link() -> None:
    """A rank that is stopped is blamed before any node that is cut off."""
    states = cut((0, 2), (1, 2))
    states[1] = replace(states[1], process="T", place="")
    assert [state.rank for state in Hang(states).culprits] == [1]
    assert "rank 1 on node 1 does not answer" in Hang(states).describe(17.4)
