"""The agreement between entrypoints, over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.trainer.lab import free_port
from trainer.exit_codes import ExitCode, RetryableError
from trainer.gang import Coordinator, Hello, Membership, join
from trainer.status_files import Ending


class Gang:
    """A coordinator for three nodes, and ways to join it."""

    def __init__(self) -> None:
        self.port = free_port()
        self.said: list[str] = []
        self.coordinator = Coordinator(self.port, self.hello(0), self.said.append)
        self._pool = ThreadPoolExecutor(8)
        self._closing = threading.Event()
        self._members: list[Membership] = []

    @staticmethod
    def hello(rank: int, nnodes: int = 3, digest: str = "same") -> Hello:
        return Hello(rank, nnodes, digest)

    def join(self, hello: Hello, timeout: float = 10) -> Membership | None:
        give_up = self._closing.is_set
        member = join("localhost", self.port, hello, timeout, self.said.append, give_up)
        if member is not None:
            self._members.append(member)
        return member

    def join_all(self, ranks: tuple[int, ...] = (0, 1, 2)) -> list[Membership]:
        futures = [self._pool.submit(self.join, self.hello(rank)) for rank in ranks]
        members = [future.result(timeout=15) for future in futures]
        assert all(members)
        return [member for member in members if member]

    def join_later(self, rank: int) -> None:
        self._pool.submit(self.join, self.hello(rank))

    def close(self) -> None:
        self._closing.set()
        self._pool.shutdown()
        for member in self._members:
            member.leave(FAILED)
        self.coordinator.close()


@pytest.fixture
def gang() -> Iterator[Gang]:
    gang = Gang()
    yield gang
    gang.close()


def lost(member: Membership, seconds: float = 5) -> Ending | None:
    deadline = time.monotonic() + seconds
    while (ending := member.lost()) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return ending


FAILED = Ending(ExitCode.RETRYABLE, "a rank was killed")


def test_all_nodes_get_the_same_round(gang: Gang) -> None:
    members = gang.join_all()
    assert len({member.round for member in members}) == 1
    assert members[0].round.number == 1
    assert members[0].round.master_address in ("127.0.0.1", "::1")


def test_a_failed_node_stops_the_others_and_the_next_round_is_a_new_one(gang: Gang) -> None:
    first = gang.join_all()
    first[1].leave(FAILED)
    for member in (first[0], first[2]):
        assert lost(member) == Ending(ExitCode.RETRYABLE, "node 1: a rank was killed")
        member.leave(FAILED)
    second = gang.join_all()
    assert second[0].round.number == 2
    assert second[0].round.rendezvous_id != first[0].round.rendezvous_id
    assert second[0].round.master_port != first[0].round.master_port


def test_a_node_that_starts_again_ends_the_round_of_its_older_self(gang: Gang) -> None:
    members = gang.join_all()
    gang.join_later(2)
    ending = lost(members[0])
    assert ending is not None
    assert ending.reason == "node 2 was started again"


def test_a_round_starts_only_when_the_last_old_one_has_come_back(gang: Gang) -> None:
    members = gang.join_all()
    members[2].leave(FAILED)
    assert lost(members[0]) is not None
    members[0].leave(FAILED)
    gang.join_later(0)
    gang.join_later(2)
    time.sleep(1)
    assert members[1].lost() is not None  # told to stop, has not ended its torchrun yet
    assert gang.coordinator._rounds == 1  # pyright: ignore[reportPrivateUsage]
    members[1].leave(FAILED)
    member = gang.join(gang.hello(1))
    assert member is not None
    assert member.round.number == 2


def test_a_fatal_failure_is_fatal_for_all(gang: Gang) -> None:
    members = gang.join_all()
    members[2].leave(Ending(ExitCode.FATAL, "no dataset"))
    assert lost(members[0]) == Ending(ExitCode.FATAL, "node 2: no dataset")


def test_a_finished_node_stops_nobody(gang: Gang) -> None:
    members = gang.join_all()
    members[1].leave(Ending(ExitCode.DONE, "finished"))
    assert lost(members[0], seconds=1) is None


def test_the_end_of_node_0_is_noticed(gang: Gang) -> None:
    members = gang.join_all()
    gang.coordinator.close()
    ending = lost(members[1])
    assert ending is not None
    assert "connection to node 0 was lost" in ending.reason


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (Gang.hello(1, digest="older"), "another run configuration or code"),
        (Gang.hello(1, nnodes=2), "node 1 of 2 is not one of the 3 nodes"),
        (Gang.hello(3), "node 3 of 3 is not one of the 3 nodes"),
    ],
)
def test_a_node_of_another_run_waits_outside_and_is_told_why(
    gang: Gang, hello: Hello, words: str
) -> None:
    with pytest.raises(RetryableError, match=words):
        gang.join(hello, timeout=1)


def test_a_name_that_does_not_resolve_is_waited_for_and_named() -> None:
    said: list[str] = []
    with pytest.raises(RetryableError, match=r"waiting for the DNS name nobody\.invalid"):
        join("nobody.invalid", 1, Gang.hello(1), 1, said.append, lambda: False)


def test_strangers_at_the_port_disturb_nobody(gang: Gang) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100_000, b"[1]\n", b"{}\n", b'{"ended":0}\n'):
        with socket.create_connection(("localhost", gang.port)) as stranger:
            try:
                stranger.sendall(data)
            except ConnectionError:
                continue
    assert len(gang.join_all()) == 3
