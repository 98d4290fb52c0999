"""When node 0 tells of ranks that stand still, and what it knows then of nodes that say nothing."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence

import pytest

from tests.trainer.launch.gang import LIMIT_SECONDS, Gang, lost
from tests.trainer.watch.rank_states import WAITS
from trainer.launch import coordinator
from trainer.launch.reception import CUT_OFF
from trainer.watch.hang import RankState

Told = tuple[list[int], list[int], list[int]]


@pytest.fixture
def gang() -> Iterator[Gang]:
    made = Gang(ping_seconds=LIMIT_SECONDS)
    yield made
    made.close()


@pytest.fixture
def told(gang: Gang) -> list[Told]:
    """Of each time: the ranks that were seen, the nodes that are missing, and those cut off."""
    found = list[Told]()

    def stalled(
        states: Sequence[RankState], _: float, missing: Sequence[int], away: Sequence[int]
    ) -> None:
        found.append(([state.rank for state in states], list(missing), list(away)))

    gang.coordinator._tell_stalled = stalled
    return found


@pytest.mark.parametrize("is_silent", [True, False])
def test_node_that_is_cut_off_is_not_awaited(
    gang: Gang, told: list[Told], monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    """Its connection would break soon, and the round with it. Another one may still answer."""
    if is_silent:
        monkeypatch.setattr(coordinator, "_STALLED_SECONDS", 10 * LIMIT_SECONDS)
    monkeypatch.setattr(gang.coordinator._reception, "is_silent", lambda node: is_silent)
    members = gang.join_all()
    members[0].report_stalled([WAITS], 15)
    gang.wait_until(lambda: bool(told))
    assert told == [([0], [1, 2], [1, 2] if is_silent else [])]


@pytest.mark.parametrize(
    ("number", "reason", "expected"),
    [
        (errno.ETIMEDOUT, f"{CUT_OFF}: it acknowledges nothing any more", [([0], [1, 2], [2])]),
        (errno.ECONNRESET, "lost the connection", []),
    ],
)
def test_connection_that_breaks_ends_the_waiting(
    gang: Gang,
    told: list[Told],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    reason: str,
    expected: list[Told],
) -> None:
    """What is known is told before the round ends; a process that has ended is no dead link."""

    def receive() -> None:
        cause = OSError(number, os.strerror(number))
        raise ConnectionError(str(cause)) from cause

    monkeypatch.setattr(coordinator, "_STALLED_SECONDS", 10 * LIMIT_SECONDS)
    members = gang.join_all()
    members[0].report_stalled([WAITS], 15)
    gang.wait_until(lambda: 0 in gang.coordinator._stalled)
    monkeypatch.setattr(gang.coordinator._reception._nodes[2].line, "receive", receive)
    members[2].report_stepped()  # it is read
    ended = lost(members[0])
    assert ended is not None
    assert ended.reason.startswith(f"node 2 {reason}")
    assert told == expected
