"""The page's words for the transport between ranks, from the events that the trainer's watch
writes.
"""

from __future__ import annotations

from typing import Any

import pytest

from cli.dashboard.transport import transport_of
from trainer.events.event import Event, Name
from trainer.transport.lines import EFA, IB, SOCKET, Transport
from trainer.transport.watch import labels_of


def told(found: dict[int, Transport], asked: str, as_asked: bool | None) -> Event:
    """Return the event that `TransportWatch` writes when the ranks have found these transports."""
    each = [labels_of(rank, transport) for rank, transport in found.items()]
    values: dict[str, Any] = {
        key: ",".join(dict.fromkeys(labels[key] for labels in each))
        for key in ("rank", "transport", "device", "gpu_direct")
    }
    return Event(Name.TRANSPORT, 1.0, 1.0, "boot", {**values, "asked": asked, "as_asked": as_asked})


ROUND = Event(Name.ROUND_BEGUN, 0.5, 0.5, "boot", {"round": 1, "ranks": 2})
FAST = told({0: Transport((IB,), ("mlx5_0",), True, is_used=True)}, "ib,roce", True)
CASES: dict[str, tuple[Event, str, str, bool | None]] = {
    "as asked": (FAST, "InfiniBand (mlx5_0), with GPUDirect", "InfiniBand or RoCE", True),
    "a fallback": (
        told({0: Transport((SOCKET,), ("eth0",), False, is_used=True)}, "efa", False),
        "TCP sockets (eth0)",
        "EFA",
        False,
    ),
    "without GPUDirect": (
        told({0: Transport((EFA,), ("rdmap0",), False, is_used=True)}, "", None),
        "EFA (rdmap0), without GPUDirect",
        "",
        None,
    ),
    "two ways": (
        told({0: Transport((EFA,)), 1: Transport((EFA, SOCKET))}, "", None),
        "EFA and TCP sockets",
        "",
        None,
    ),
    "one machine": (told({0: Transport(machines=1)}, "", None), "inside one machine", "", None),
    "not known": (
        told({0: Transport()}, "ib", None),
        "a transport that NCCL does not tell",
        "InfiniBand",
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_event_of_the_trainer_becomes_words(case: str) -> None:
    """The page says in words which transport the ranks use, which one was asked for, and whether
    they agree.
    """
    event, words, asked, as_asked = CASES[case]
    expected = {"words": words, "asked": asked, "as_asked": as_asked}
    assert transport_of([ROUND, event]) == expected


def test_round_before_tells_nothing_of_the_newest_one() -> None:
    """The transport of an earlier round is not shown for the newest one, whose ranks may use
    another.
    """
    assert transport_of([ROUND, FAST, ROUND]) is None
    assert transport_of([]) is None
