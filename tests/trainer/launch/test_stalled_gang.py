"""When node 0 reports ranks that stand still, and what it then knows of nodes that say nothing."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence

import pytest

from tests.trainer.launch.gang import FAILED, LIMIT_SECONDS, Gang, lost
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
    """Return a list that gets an entry for each report: the ranks that answered, the nodes that are
    missing, and the nodes that are cut off.
    """
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
    """Node 0 reports at once when all nodes without an answer are cut off, because their
    connections, and with them the round, will end soon. A node that may still answer is waited for.
    """
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
    """A node that is lost by a dead link ends the wait, and the hang is reported before the round
    ends. A node whose process has ended is no dead link, and no hang is reported.
    """

    def receive() -> None:
        cause = OSError(number, os.strerror(number))
        raise ConnectionError(str(cause)) from cause

    monkeypatch.setattr(coordinator, "_STALLED_SECONDS", 10 * LIMIT_SECONDS)
    members = gang.join_all()
    members[0].report_stalled([WAITS], 15)
    gang.wait_until(lambda: 0 in gang.coordinator._stalled)
    monkeypatch.setattr(gang.coordinator._reception._nodes[2].line, "receive", receive)
    members[2].report_stepped()  # makes the coordinator read from this node
    ended = lost(members[0])
    assert ended is not None
    assert ended.reason.startswith(f"node 2 {reason}")
    assert told == expected


def test_hang_of_a_lost_round_is_not_told(gang: Gang, told: list[Told]) -> None:
    """A node may report that its ranks stand still before it reads that the round is lost. They
    stand still because of the node that has ended, and its ranks are not in the report.
    """
    members = gang.join_all()
    members[2].leave(FAILED)
    assert lost(members[0]) is not None
    members[0].report_stalled([WAITS], 15)
    members[0].leave(FAILED)
    gang.join_later(0)
    gang.wait_until_waiting(0)  # so the report of its round has been read
    gang.coordinator.close()
    assert told == []
