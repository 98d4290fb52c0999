"""The coordinator: a thread of node 0 that gathers the nodes and starts and stops their ranks.

The entrypoints agree before any rank is started. Node 0 listens at the master port. Every
entrypoint connects and sends its node rank. When all are connected, node 0 sends them a new port,
at which the ranks meet, and a round begins. The connections stay open during the round. If a
connection breaks, or a node reports that it failed, node 0 tells the other nodes to stop. Then all
nodes end their ranks and connect again. With `train.nodes_min` a round may have fewer nodes than
the run; gathering.py decides when it may.

    node -> node 0   Hello                the node waits for a round
    node 0 -> node   Wait                 what has to happen before it can start
                     Start                start the ranks now
                     Regroup              save and end the ranks: a node has returned
                     Stop                 end the ranks, the round is lost
                     Refused              this node does not belong here (yet)
                     Ping -> Pong         is the node alive? (sent if another claims its rank)
    node -> node 0   Proven               the node has seen the files of all nodes on the volume
                     Stepped              the node's ranks train
                     Stalled              the node's ranks do not move any more, and where they are
                     Failing              one of the node's ranks has failed
                     Ended                how the node's ranks have ended
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence

from trainer.launch.exit_codes import ExitCode
from trainer.launch.gathering import Gathering, RoundRules, places
from trainer.launch.messages import (
    Ended,
    Failing,
    Hello,
    Message,
    Proven,
    Regroup,
    Stalled,
    Start,
    Stepped,
    Stop,
    Wait,
)
from trainer.launch.ports import store_port
from trainer.launch.reception import CUT_OFF, PING_SECONDS, Reception
from trainer.watch.hang import RankState, from_text

_POLL_SECONDS = 0.5
_STALLED_SECONDS = 5.0
Stalls = Callable[[Sequence[RankState], float, Sequence[int], Sequence[int]], None]


class Coordinator:
    """Starts and stops the rounds of one run."""

    def __init__(
        self,
        port: int,
        expected: Hello,
        key: bytes,
        say: Callable[[str], None],
        rules: RoundRules,
        ping_seconds: float = PING_SECONDS,
        stalled: Stalls | None = None,
        done: Callable[[], None] | None = None,
        proven: Callable[[Mapping[int, Proven]], None] | None = None,
    ):
        """Listen at `port` on all addresses.

        Args:
            port: The TCP port.
            expected: The Hello of node 0 itself; other nodes must have the same nnodes and digest.
            key: The run's key; see trainer.launch.signed_lines.
            say: Prints a line.
            rules: Which nodes a round needs.
            ping_seconds: How long a node may leave a Ping unanswered before another entrypoint
                with the same node rank takes its place.
            stalled: Called when the ranks of the round do not move any more. Its arguments are the
                states of the ranks, how many seconds they have not moved, the nodes that have not
                reported where their ranks are, and those of these nodes that do not acknowledge
                what node 0 sends them.
            done: Called when all nodes of a round have finished; no round is started after it.
            proven: Called when all nodes of a round have seen each other's files on the volume.

        Raises:
            OSError: the port is taken.
        """
        self._port, self._expected, self._say = port, expected, say
        self._gathering = Gathering(rules)
        self._waiting: dict[int, Wait | None] = {}  # the last Wait sent to each waiting node
        self._running, self._stepped = set[int](), set[int]()
        self._members = set[int]()  # the nodes of the round, also those that have left
        self._first_failing: int | None = None
        self._tell_stalled = stalled
        self._stalled: dict[int, Stalled] = {}  # the reports of the nodes
        self._stalled_since = 0.0
        self._tell_proven = proven
        self._proven: dict[int, Proven] = {}  # the measured times of each node
        self._tell_done, self._is_finished = done, False
        self._done = set[int]()  # the nodes that have finished their part of the round
        self._rounds, self._regroups, self._closing = 0, False, False
        self.failure: str | None = None
        """The traceback of the error that has ended the thread; None if there was no error."""
        self._reception = Reception(
            port, expected, key, say, self._joined, self._heard, self._left, ping_seconds
        )
        self._thread = threading.Thread(target=self._serve, name="coordinator", daemon=True)
        self._thread.start()

    @property
    def rounds(self) -> int:
        """How many rounds the coordinator has started."""
        return self._rounds

    def close(self) -> None:
        """Stop listening and drop all connections."""
        self._closing = True
        self._thread.join()

    def _serve(self) -> None:
        try:
            while not self._closing:
                self._reception.serve(_POLL_SECONDS)
                self._start_or_regroup()
                self._tell_waiting()
                self._tell_if_stalled()
            self._reception.serve(0)  # read what nodes sent before `close`
        except Exception:
            self.failure = traceback.format_exc()
        finally:
            self._reception.close()

    def _joined(self, node: int) -> None:
        self._waiting[node] = None

    def _heard(self, node: int, message: Message) -> None:
        if isinstance(message, Stepped):
            self._stepped.add(node)
            if self._running and self._running <= self._stepped:
                self._gathering.all_stepped(time.monotonic())
        elif isinstance(message, Proven):
            self._proven[node] = message
            if self._proven.keys() == self._members and self._tell_proven is not None:
                self._tell_proven(self._proven)
        elif isinstance(message, Failing):
            # This node is the cause, even if other nodes report the end of their ranks first. Their
            # ranks fail because of this node, and may all end before this node's ranks do.
            self._first_failing = node if self._first_failing is None else self._first_failing
        elif isinstance(message, Stalled):
            if node not in self._running:  # its round is lost already, and another reason was told
                return
            self._stalled_since = self._stalled_since if self._stalled else time.monotonic()
            self._stalled[node] = message
        elif isinstance(message, Ended):
            self._ended(node, message)
        else:
            self._reception.drop(node, "said what a node does not say")

    def _left(self, node: int, reason: str) -> None:
        self._waiting.pop(node, None)
        if node in self._running:
            if reason.startswith(CUT_OFF):
                self._tell_if_stalled(cut_off=node)
            self._running.remove(node)
            self._stop_round(node, f"node {node} {reason}", ExitCode.RETRYABLE)

    def _ended(self, node: int, message: Ended) -> None:
        if node not in self._running:
            return
        self._running.remove(node)
        if message.code == ExitCode.DONE:
            self._done.add(node)
        has_saved_as_asked = self._regroups and message.code == ExitCode.PREEMPTED
        if message.code != ExitCode.DONE and not has_saved_as_asked:
            self._stop_round(node, f"node {node}: {message.reason}", ExitCode(message.code))
        elif self._done == self._members and self._tell_done is not None:
            self._tell_done()
            self._is_finished = True

    def _start_or_regroup(self) -> None:
        """Start a round if the rules allow it now, or end one so that nodes can join again."""
        now = time.monotonic()
        if self._is_finished:
            return
        if not self._running:
            if members := self._gathering.next_round(self._waiting, now):
                self._start_round(members)
        elif not self._regroups and (
            back := self._gathering.to_take_back(self._waiting.keys() - self._done, now)
        ):
            self._regroups = True
            for node in self._running:
                self._reception.send(node, Regroup(f"node(s) {_listed(back)} can join the others"))

    def _start_round(self, members: list[int]) -> None:
        self._rounds, self._regroups = self._rounds + 1, False
        self._gathering.started(members)
        self._running, self._stepped, self._first_failing = set(members), set[int](), None
        self._stalled, self._done, self._members = {}, set[int](), set(members)
        self._proven = {}
        if missing := [node for node in range(self._expected.nnodes) if node not in members]:
            self._say(f"starting without node(s) {_listed(missing)}")
        address = self._address_for_other_machines()
        port = store_port(self._port, self._rounds)
        hellos = [self._reception.hello_of(node) for node in members]
        for node, place in zip(members, places(hellos), strict=True):
            del self._waiting[node]
            start = Start(
                self._rounds,
                port,
                members,
                place.first_rank,
                place.world_size,
                place.ranks_on_machine,
                address,
                [hello.proof for hello in hellos],
            )
            self._reception.send(node, start)

    def _address_for_other_machines(self) -> str:
        """Return the address by which a node of another machine has reached node 0.

        The result is empty if no node of the round is on another machine.
        """
        addresses = [
            self._reception.own_address(node)
            for node in self._running
            if self._reception.hello_of(node).machine != self._expected.machine
        ]
        return next((address for address in addresses if address), "")

    def _stop_round(self, lost: int, reason: str, code: ExitCode) -> None:
        """Tell the nodes in the round to end it.

        Args:
            lost: The node that has already left the round.
            reason: Why the round is lost, for people.
            code: How the node `lost` ended.
        """
        if self._running:
            self._say(f"round {self._rounds} is lost: {reason}; stopping the other nodes")
        others = len(self._running) + len(self._waiting)
        if code == ExitCode.FATAL and self._gathering.is_dispensable(lost, others):
            code = ExitCode.RETRYABLE
        failed = lost if self._first_failing is None else self._first_failing
        if self._gathering.lost(failed, others, time.monotonic()):
            self._say(f"node {failed} ended the round soon after its start: the next is without it")
        for node in self._running:
            self._reception.send(node, Stop(reason, int(code)))
        # The reports about ranks that stand still are dropped: the one of node `lost` is missing.
        self._running, self._stalled = set[int](), {}

    def _tell_if_stalled(self, cut_off: int | None = None) -> None:
        """Report where the ranks of the round stand still.

        This waits until all nodes have sent their report, or for `_STALLED_SECONDS`. It does not
        wait for nodes that do not acknowledge what node 0 sends.

        `cut_off`: the node whose connection has just broken because nothing reaches it any more.
        """
        missing = sorted(self._running - self._stalled.keys())
        away = [node for node in missing if node == cut_off or self._reception.is_silent(node)]
        is_over = time.monotonic() - self._stalled_since > _STALLED_SECONDS or cut_off is not None
        if not self._stalled or (missing != away and not is_over):
            return
        said, self._stalled = self._stalled, {}
        states = [state for message in said.values() for state in from_text(message.states)]
        seconds = max(message.seconds for message in said.values())
        if states and self._tell_stalled is not None:
            self._tell_stalled(states, seconds, missing, away)

    def _tell_waiting(self) -> None:
        usual = Wait(*self._gathering.describe(self._waiting, is_running=bool(self._running)))
        text = f"waiting for node(s) {_listed(sorted(self._running))} to end; this one has finished"
        for node, told in self._waiting.items():
            wait = Wait(text, is_sure=True) if self._running and node in self._done else usual
            if told != wait:
                self._waiting[node] = wait
                self._reception.send(node, wait)


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))
