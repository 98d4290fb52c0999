"""Whether a transport is the one that was asked for, and what a node says about it."""

from __future__ import annotations

import pytest

from tests.trainer.transport.recorded import RECORDED
from trainer.transport.asked import as_asked, asked_of, causes, line, of_node
from trainer.transport.lines import Transport, read_transport


def recorded(name: str) -> Transport:
    """Return the transport that the recorded lines of this name mean."""
    return read_transport(RECORDED[name][0])


SOCKETS, IB = recorded("EFA is not in the pod, so sockets"), recorded("InfiniBand with GPUDirect")
ROCE, EFA = recorded("RoCE"), recorded("EFA with GPUDirect")
EITHER, LIBFABRIC = (
    recorded("by another rank's device"),
    recorded("EFA of 2019, and no line of its provider"),
)
INSIDE, GOOGLES = recorded("one machine with NVLink"), recorded("Google's plugin")
GLOO = Transport(("socket",), ("eth0",), machines=2, library="gloo")


@pytest.mark.parametrize(
    ("found", "asked", "answer"),
    [
        (SOCKETS, "socket", True),
        (SOCKETS, "ib", False),
        (SOCKETS, "ib,roce", False),
        (SOCKETS, "efa", False),
        (SOCKETS, "gIB", False),
        (SOCKETS, "", None),
        (IB, "ib", True),
        (IB, "roce, ib", True),
        (IB, "roce", False),
        (IB, "socket", False),
        (ROCE, "roce", True),
        (EITHER, "ib,roce", True),
        (EITHER, "ib", None),
        (EITHER, "efa", False),
        (EFA, "efa", True),
        (EFA, "ib", False),
        (LIBFABRIC, "efa", None),
        (GOOGLES, "gIB", True),
        (GOOGLES, "ib", None),
        (INSIDE, "ib", None),
        (Transport(), "ib", None),
        (Transport(("ib", "socket"), is_used=True), "ib", False),
        (Transport(("ib", "gIB"), is_used=True), "ib", None),
        (GLOO, "socket", True),
        (GLOO, "ib", False),
    ],
)
def test_what_was_asked_for_is_told_from_what_was_not(
    found: Transport, asked: str, answer: bool | None
) -> None:
    """The answer is True or False only if it is known. It is None for a network whose name is not
    known, for one that nobody uses, and if nothing was asked for.
    """
    assert as_asked(found, asked_of(asked)) is answer


def test_one_rank_with_another_transport_decides_for_its_node() -> None:
    """A node has another transport than asked for as soon as one of its ranks has, and the one
    asked for only if all its ranks have it.
    """
    assert of_node({0: IB, 1: SOCKETS}, ("ib",)) is False
    assert of_node({0: IB, 1: Transport()}, ("ib",)) is None
    assert of_node({0: IB, 1: IB}, ("ib",)) is True
    assert of_node({}, ("ib",)) is None


@pytest.mark.parametrize(
    ("found", "asked", "said"),
    [
        ({0: SOCKETS}, "socket", "transport as asked: rank 0 by NCCL over TCP sockets (eth0)"),
        (
            {0: IB, 1: IB},
            "ib",
            "transport as asked: rank 0, 1 by NCCL over InfiniBand (mlx5_0), with GPUDirect",
        ),
        ({3: EFA}, "", "transport: rank 3 by NCCL over EFA, with GPUDirect"),
        ({6: INSIDE}, "ib", "transport: rank 6 by NCCL inside one machine by P2P/CUMEM"),
        (
            {0: recorded("shared memory inside, EFA between")},
            "efa",
            "transport as asked: rank 0 by NCCL over EFA, without GPUDirect; inside a machine by "
            "SHM/direct",
        ),
        (
            {0: GLOO, 1: GLOO},
            "socket",
            "transport as asked: rank 0, 1 by gloo over TCP sockets (eth0)",
        ),
        ({0: GOOGLES}, "ib", "transport not known: rank 0: NCCL says gIB"),
        ({0: EITHER}, "ib", "transport not known: rank 0: NCCL says InfiniBand or RoCE"),
        ({0: GOOGLES}, "", "transport: rank 0 by NCCL over gIB"),
        ({0: GOOGLES}, "gIB", "transport as asked: rank 0 by NCCL over gIB"),
        (
            {0: IB, 1: Transport()},
            "ib",
            "transport not known: rank 1: NCCL has written no line that says it",
        ),
        (
            {0: GLOO},
            "ib",
            "warning: transport not as asked: rank 0 by gloo over TCP sockets (eth0), and the "
            "network profile asks for InfiniBand. The cause: the ranks use gloo, which knows TCP "
            "alone: NCCL needs GPUs, and backend nccl",
        ),
    ],
)
def test_a_node_says_it_in_one_plain_line(
    found: dict[int, Transport], asked: str, said: str
) -> None:
    """A node tells in one line by which transport its ranks talk, and whether that was
    asked for.
    """
    assert line(found, asked_of(asked)) == said


def test_a_fallback_names_three_causes_and_begins_with_the_likeliest() -> None:
    """A fallback to TCP sockets gives a warning of one line with three causes, the likeliest one
    first.
    """
    off = recorded("switched off by a variable")
    said = line({0: off, 1: IB}, ("ib", "roce"))
    assert said.startswith(
        "warning: transport not as asked: rank 0 by NCCL over TCP sockets (eth0), and the network "
        "profile asks for InfiniBand or RoCE. Likely causes: (1) a variable of podEnvironment"
    )
    assert "(NCCL says: NCCL_IB_DISABLE set by environment to 1.); (2) the pod has no RDMA" in said
    assert "; (3) the image has no libibverbs" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("name", "asked", "first"),
    [
        ("EFA is not in the pod, so sockets", "efa", "the pod has no EFA device"),
        ("no InfiniBand device, two interfaces", "ib", "the pod has no RDMA device"),
        ("a plugin without its device", "roce", "the pod has no RDMA device"),
        ("no library for InfiniBand", "ib", "the image has no libibverbs"),
        ("switched off by a variable", "ib", "a variable of podEnvironment"),
        ("InfiniBand with GPUDirect", "socket", "a variable of podEnvironment"),
    ],
)
def test_the_cause_that_nccl_speaks_of_comes_first(name: str, asked: str, first: str) -> None:
    """Of the three causes the first is the one that NCCL's own lines speak of."""
    found = causes(recorded(name), asked_of(asked))
    assert len(found) == 3
    assert found[0][0].text.startswith(first)
