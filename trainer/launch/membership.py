"""The part of each node in the agreement between nodes; node 0's is in coordinator.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer.launch.exit_codes import ExitCode, RetryableError
from trainer.launch.messages import (
    RUN_KEY_VARIABLE,
    Ended,
    Failing,
    ForeignPeerError,
    Hello,
    Message,
    Ping,
    Pong,
    Proven,
    Refused,
    Regroup,
    SignedLines,
    Stalled,
    Start,
    Stepped,
    Stop,
    Wait,
)
from trainer.launch.search import Found, Search, asked_once, by_address, by_name
from trainer.launch.status_files import ExitReport
from trainer.watch.hang import RankState, to_text

_SAY_EVERY_SECONDS = 10
_POLL_SECONDS = 0.1
_REFUSED_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Round:
    """One common start of the ranks on several nodes.

    Args:
        number: counts the rounds of node 0's entrypoint.
        master_address, master_port: where the ranks meet.
        nodes: the nodes of this round, in order.
        first_rank: of this node's ranks among all ranks of the round.
        world_size: ranks of all nodes of the round.
        ranks_on_machine: ranks of all nodes that share this node's machine.
        own_address: of this node, as the others reach it; empty where all are on this machine.
        proofs: names of what each node has written to the volume, in the order of `nodes`.
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
        """A round of a run with a single node."""
        return Round(number, "127.0.0.1", port, (0,), 0, local_ranks, local_ranks, "")


class RoundMember:
    """This node in one round."""

    def __init__(self, line: SignedLines, started: Round, early: list[Message]):
        self.round = started
        self.regroups_for = ""
        """Why the ranks are to save and end, for a round with more nodes; empty: they go on."""
        self._line = line
        self._early = early

    def poll_lost(self) -> ExitReport | None:
        """Why this round has to be ended, or None while it goes on. Call it several times a
        second: it also answers node 0's question whether this node is alive.
        """
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
                # A node that has saved as it was asked is no failure of this one.
                return ExitReport(ExitCode(message.code), message.reason)
        return None

    def report_proven(self, figures: Proven) -> None:
        """Tell node 0 that this node has seen what all others have written to the volume."""
        self._line.send(figures)

    def report_stepped(self) -> None:
        """Tell node 0 that all ranks of this node have made their first update."""
        self._line.send(Stepped())

    def report_stalled(self, states: Sequence[RankState], seconds: float) -> None:
        """Tell node 0 where the ranks of this node stand still, and for how long they do so."""
        self._line.send(Stalled(to_text(states), int(seconds)))

    def report_failing(self) -> None:
        """Tell node 0 that a rank of this node has failed, before its other ranks have ended."""
        self._line.send(Failing())

    def report_stopped(self, report: ExitReport) -> None:
        """Tell node 0 that the ranks of this node end now, before the others lose them."""
        self._line.send(Ended(int(report.code), report.reason))

    def leave(self, report: ExitReport) -> None:
        """Report how the ranks of this node ended, and close the connection."""
        self._line.send(Ended(int(report.code), report.reason))
        self._line.close()


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
    """Wait for node 0, and for the other nodes; then return the common round.

    Args:
        host, port: the name of node 0, and where it listens.
        hello: what this node says of itself.
        key: of the run; see trainer.launch.messages.
        timeout_seconds: longest wait.
        say: prints a line.
        give_up: asked about ten times a second; when it says so, the result is None.
        noted: the address of node 0 by another way than its name; empty: it is not known. It may
            hang, and may raise OSError.

    Raises:
        RetryableError: not enough nodes were there within `timeout_seconds`. The time during which
            a round is sure to come, or other nodes train without this one, does not count.
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
    """What node 0 has sent; a connection that it has ended counts as a refusal."""
    try:
        return line.receive()
    except ForeignPeerError as error:
        reason = f"was not understood: {error} ({RUN_KEY_VARIABLE} differs?)"
    except ConnectionError as error:
        reason = f"hung up ({error})"
    return [Refused(f"node 0 at {host}:{port} {reason}")]


def _answer(line: SignedLines, messages: list[Message]) -> RoundMember | Wait | Refused | None:
    """What the messages come to: the round, a refusal, or else the newest reason to wait."""
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
    """The round that node 0 has announced; the ranks get the address that just worked."""
    own = ""
    if start.address:
        own = str(line.connection.getsockname()[0]).removeprefix("::ffff:")
        if own.startswith("127.") or own == "::1":  # node 0 itself: as the others reach it
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
