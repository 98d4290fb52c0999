"""What NCCL's lines say about the way to other ranks, for recorded lines."""

from __future__ import annotations

import pytest

from tests.trainer.transport.recorded import RECORDED, info
from trainer.transport.lines import read_transport


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_lines_are_read_as_they_are_meant(name: str) -> None:
    lines, meant = RECORDED[name]
    assert read_transport(lines) == meant


def test_connections_that_go_two_ways_are_both_told() -> None:
    """If some connections use InfiniBand and others TCP sockets, both are in the result."""
    found = read_transport(
        info(
            "NET/IB : Using [0]mlx5_0:1/IB; OOB eth0:10.0.0.1<0>",
            "NET/Socket : Using [0]eth0:10.0.0.1<0>",
            "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
            "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0",
        )
    )
    assert (found.networks, found.devices) == (("ib", "socket"), ("mlx5_0", "eth0"))
