"""The side of each node in the agreement about rounds; node 0's side is coordinator.py.

Node 0 also takes this side: it connects to its own coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer.launch.exit_codes import ExitCode, RetryableError
from trainer.launch.messages import (
    Ended,
    Failing,
    Hello,
    Message,
    Ping,
    Pong,
    Proven,
    Refused,
    Regroup,
    Stalled,
    Start,
    Stepped,
    Stop,
    Wait,
)
from trainer.launch.search import Found, Search, asked_once, by_address, by_name
from trainer.launch.signed_lines import RUN_KEY_VARIABLE, ForeignPeerError, SignedLines
from trainer.launch.status_files import ExitReport
from trainer.watch.hang import RankState, to_text

_SAY_EVERY_SECONDS = 10
_POLL_SECONDS = 0.1
_REFUSED_PAUSE_SECONDS = 1.0
# Characters. A message has at most 65,536 bytes, and JSON may need 12 of them for a character.
_LONGEST_REASON = 4000


@dataclass(frozen=True)
class Round:
    """One common start of the ranks on several nodes.

    Args:
        number: The number of the round, counted from 1 by node 0's entrypoint.
        master_address, master_port: Where the ranks meet.
        nodes: The nodes of this round, in order.
        first_rank: The first rank of this node among all ranks of the round.
        world_size: The number of ranks of all nodes of the round.
        ranks_on_machine: The number of ranks of all nodes that share this node's machine.
        own_address: The address at which other nodes reach this node; empty if all nodes of the
            round are on one machine.
        proofs: The names of the files that the nodes have written to the volume, in the order of
            `nodes`.
    """

    number: int
    master_address: str
    master_port: int
    nodes: tuple[int, ...]
    first_rank: int
    world_size: int
    ranks_on_machine: int
    own_address: str
    proofs: tuple[str, ...] = ()

    @staticmethod
    def alone(number: int, port: int, local_ranks: int) -> Round:
        """Return a round of a run with a single node."""
        return Round(number, "127.0.0.1", port, (0,), 0, local_ranks, local_ranks, "")


class RoundMember:
    """This node's connection to node 0 during one round."""

    def __init__(self, line: SignedLines, started: Round, early: list[Message]):
        self.round = started
        self.regroups_for = ""
        """Why the ranks have to save and end, so that a round with more nodes can begin.

        Empty while the ranks go on.
        """
        self._line = line
        self._early = early
        self._lost: ExitReport | None = None

    def poll_lost(self) -> ExitReport | None:
        """Return why this round has to end, or None while it goes on.

        The first reason stays: node 0 may end soon after it has sent one, and then the connection
        is lost too.

        Call this several times a second: it also answers node 0's question whether this node is
        alive.
        """
        lost = self._heard_lost()
        self._lost = self._lost or lost
        return self._lost

    def _heard_lost(self) -> ExitReport | None:
        """Return why the round has to end, if that was heard since the last call."""
        try:
            messages, self._early = self._early + self._line.receive(), []
        except ConnectionError as error:
            reason = f"the connection to node 0 was lost ({error})"
            return ExitReport(ExitCode.RETRYABLE, reason)
        for message in messages:
            if isinstance(message, Ping):
                self._line.send(Pong())
            elif isinstance(message, Regroup):
                self.regroups_for = message.reason
            elif isinstance(message, Stop):
                # The code is node 0's: a node that saved as it was asked to is no failure.
                return ExitReport(ExitCode(message.code), message.reason)
        return None

    def report_proven(self, figures: Proven) -> None:
        """Tell node 0 that this node has seen what all other nodes have written to the volume.

        `figures`: the times that this node has measured meanwhile.
        """
        self._line.send(figures)

    def report_stepped(self) -> None:
        """Tell node 0 that all ranks of this node have made their first update."""
        self._line.send(Stepped())

    def report_stalled(self, states: Sequence[RankState], seconds: float) -> None:
        """Tell node 0 where the ranks of this node stand still, and for how many seconds."""
        self._line.send(Stalled(to_text(states), int(seconds)))

    def report_failing(self) -> None:
        """Tell node 0 that a rank of this node has failed, before its other ranks have ended."""
        self._line.send(Failing())

    def report_stopped(self, report: ExitReport) -> None:
        """Tell node 0 that the ranks of this node end now, before other nodes lose these ranks."""
        self._line.send(_ended(report))

    def leave(self, report: ExitReport) -> None:
        """Report how the ranks of this node ended, and close the connection."""
        self._line.send(_ended(report))
        self._line.close()


def _ended(report: ExitReport) -> Ended:
    """Return the message for a report; of a very long reason it has the beginning and the end."""
    reason = report.reason
    if len(reason) > _LONGEST_REASON:
        half = _LONGEST_REASON // 2
        reason = f"{reason[:half]} [...] {reason[-half:]}"
    return Ended(int(report.code), reason)


def join(
    host: str,
    port: int,
    hello: Hello,
    key: bytes,
    timeout_seconds: float,
    say: Callable[[str], None],
    give_up: Callable[[], bool],
    noted: Callable[[], str] = lambda: "",
) -> RoundMember | None:
    """Wait for node 0 and for the other nodes; then return this node's part in the next round.

    Args:
        host, port: The host name of node 0, and the TCP port at which it listens.
        hello: This node's first message.
        key: The run's key; see trainer.launch.signed_lines.
        timeout_seconds: The longest wait.
        say: Prints a line.
        give_up: Called about ten times a second; if it returns True, the result is None.
        noted: Returns the address of node 0 as noted on the volume, or an empty text if that is not
            known. The call may hang, and may raise OSError.

    Raises:
        RetryableError: Not enough nodes were there within `timeout_seconds`. The time in which a
            round is sure to come, or in which other nodes train without this one, does not count.
    """
    deadline = time.monotonic() + timeout_seconds
    said_at, status, line, next_try, is_sure = float("-inf"), "", None, 0.0, False
    search: Search | None = None
    found: Found | None = None
    strangers = set[str]()
    ways = (by_name(host), by_address(asked_once(noted, strangers)))
    try:
        while not give_up():
            if line is None:
                if search is None and time.monotonic() >= next_try:
                    search = Search(ways, port)
                if search is not None:
                    found, status = search.taken(), search.status or status
                if found is not None:
                    search = None
                    line = SignedLines(found.connection, key, is_server=False)
                    line.send(hello)
            else:
                assert found is not None
                answer = _answer(line, _heard(line, host, port))
                if isinstance(answer, RoundMember):
                    line = None  # the member goes on with it
                    return answer
                if isinstance(answer, Wait):
                    status, is_sure = answer.reason, answer.is_sure
                elif isinstance(answer, Refused):
                    status, is_sure = answer.reason, False
                    line.close()
                    if found.way is not ways[0]:
                        strangers.add(found.host)
                    line, found = None, None
                    next_try = time.monotonic() + _REFUSED_PAUSE_SECONDS
            now = time.monotonic()
            if is_sure:
                deadline = now + timeout_seconds
            if now > deadline:
                raise RetryableError(f"gave up after {timeout_seconds:g} s: {status}")
            if status and now - said_at > _SAY_EVERY_SECONDS:
                say(status)
                said_at = now
            time.sleep(_POLL_SECONDS)
        return None
    finally:
        if search is not None:
            search.close()
        if line is not None:
            line.close()


def _heard(line: SignedLines, host: str, port: int) -> list[Message]:
    """Return what node 0 has sent; a broken connection to node 0 counts as a refusal."""
    try:
        return line.receive()
    except ForeignPeerError as error:
        reason = f"was not understood: {error} ({RUN_KEY_VARIABLE} differs?)"
    except ConnectionError as error:
        reason = f"hung up ({error})"
    return [Refused(f"node 0 at {host}:{port} {reason}")]


def _answer(line: SignedLines, messages: list[Message]) -> RoundMember | Wait | Refused | None:
    """Return the first round or refusal in the messages, or else the newest reason to wait."""
    newest: Wait | None = None
    for position, message in enumerate(messages):
        if isinstance(message, Start):
            return RoundMember(line, _round_of(message, line), messages[position + 1 :])
        if isinstance(message, Refused):
            return message
        if isinstance(message, Ping):
            line.send(Pong())
        elif isinstance(message, Wait):
            newest = message
    return newest


def _round_of(start: Start, line: SignedLines) -> Round:
    """Return the round that node 0 has announced.

    The ranks meet at the address of node 0 by which this node is connected, because it works.
    """
    own = ""
    if start.address:
        own = str(line.connection.getsockname()[0]).removeprefix("::ffff:")
        if own.startswith("127.") or own == "::1":  # this is node 0: others reach it there
            own = start.address
    return Round(
        start.round,
        line.peer(),
        start.port,
        tuple(start.nodes),
        start.first_rank,
        start.world_size,
        start.ranks_on_machine,
        own,
        tuple(start.proofs),
    )
