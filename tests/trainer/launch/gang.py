"""A coordinator and nodes that agree on rounds over real sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.trainer.lab import free_port
from trainer.launch.coordinator import Coordinator
from trainer.launch.exit_codes import ExitCode, RetryableError
from trainer.launch.gathering import RoundRules
from trainer.launch.membership import RoundMember, join
from trainer.launch.messages import Hello
from trainer.launch.status_files import ExitReport

KEY = b"the key of this run"
PING_SECONDS = 1.0
LIMIT_SECONDS = 60.0  # the longest wait for something that has to happen
ALL_NODES = RoundRules(nodes=3, nodes_min=3)


def hello(
    rank: int, nnodes: int = 3, digest: str = "same", instance: str = "", machine: str = "one"
) -> Hello:
    """Return the greeting of a node, whose instance is `<rank>-1` unless the test names another
    one.
    """
    return Hello(rank, nnodes, digest, instance or f"{rank}-1", machine, 1, f"pod-{rank}")


class Clock:
    """The clock of the nodes that join, which a test may turn forward."""

    def __init__(self) -> None:
        self._turned_seconds = 0.0
        self.sleep = time.sleep

    def monotonic(self) -> float:
        return time.monotonic() + self._turned_seconds

    def turn(self) -> None:
        """Turn the clock forward beyond every time limit."""
        self._turned_seconds += 1e6


class Gang:
    """A coordinator for three nodes, and functions that join it."""

    def __init__(self, rules: RoundRules = ALL_NODES, ping_seconds: float = PING_SECONDS) -> None:
        self.port = free_port()
        self.said: list[str] = []
        self.done: list[str] = []
        self.coordinator = Coordinator(
            self.port,
            hello(0),
            KEY,
            self.said.append,
            rules,
            ping_seconds,
            done=lambda: self.done.append("done"),
        )
        self._pool = ThreadPoolExecutor(8)
        self._closing = threading.Event()
        self._members: list[RoundMember] = []

    def join(
        self, who: Hello, timeout: float = LIMIT_SECONDS, key: bytes = KEY
    ) -> RoundMember | None:
        """Join a round as the node `who`. Returns None if the gang is closed before a round
        starts.
        """
        give_up = self._closing.is_set
        member = join("localhost", self.port, who, key, timeout, self.said.append, give_up)
        if member is not None:
            self._members.append(member)
        return member

    def join_all(self, *nodes: Hello) -> list[RoundMember]:
        """Join as these nodes (by default nodes 0 to 2) at once, and return their memberships of
        the round.
        """
        futures = [self._pool.submit(self.join, who) for who in nodes or map(hello, range(3))]
        members = [future.result(timeout=LIMIT_SECONDS) for future in futures]
        assert all(members)
        return [member for member in members if member]

    def join_later(self, rank: int, instance: str = "") -> Future[RoundMember | None]:
        """Join as the node `rank` in another thread, and return the future of its membership."""
        return self._pool.submit(self.join, hello(rank, instance=instance))

    def refuse(self, who: Hello, words: str, clock: Clock, key: bytes = KEY) -> None:
        """Assert that the node is told `words` while it waits, and that it gives up at its time
        limit.
        """
        joining = self._pool.submit(self.join, who, LIMIT_SECONDS, key)
        self.wait_until_said(words)
        clock.turn()
        with pytest.raises(RetryableError, match=words):
            joining.result(timeout=LIMIT_SECONDS)

    def wait_until_waiting(self, node: int) -> None:
        """Wait until the coordinator knows that this node waits for a round."""
        self.wait_until(lambda: node in self.coordinator._waiting)  # pyright: ignore

    def wait_until(self, condition: Callable[[], bool], seconds: float = LIMIT_SECONDS) -> None:
        """Wait until the condition holds, and fail with everything that was said after
        `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def wait_until_said(self, words: str) -> None:
        self.wait_until(lambda: any(words in line for line in self.said))

    def close(self) -> None:
        self._closing.set()
        self._pool.shutdown()
        for member in self._members:
            member.leave(FAILED)
        self.coordinator.close()


def lost(member: RoundMember, seconds: float = LIMIT_SECONDS) -> ExitReport | None:
    """Return how the round ended for this member, or None if it still runs after `seconds`."""
    deadline = time.monotonic() + seconds
    while (ending := member.poll_lost()) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return ending


FAILED = ExitReport(ExitCode.RETRYABLE, "a rank was killed")
