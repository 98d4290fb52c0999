"""The entrypoints of the nodes agree on rounds through the coordinator of node 0, here over real
sockets.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.trainer.lab import free_port
from tests.trainer.launch.gang import FAILED, KEY, LIMIT_SECONDS, Clock, Gang, hello, lost
from trainer.launch import membership
from trainer.launch.exit_codes import ExitCode, RetryableError
from trainer.launch.membership import join
from trainer.launch.messages import (
    Ended,
    Hello,
    Message,
    Start,
    Stop,
    from_mapping,
    to_mapping,
)
from trainer.launch.reception import Reception
from trainer.launch.signed_lines import SignedLines
from trainer.launch.status_files import ExitReport


@pytest.fixture
def gang() -> Iterator[Gang]:
    """Yield a coordinator for three nodes, and close it with its members afterwards."""
    gang = Gang()
    yield gang
    gang.close()


DONE = ExitReport(ExitCode.DONE, "the program has ended with exit code 0")


def test_all_nodes_get_the_same_round(gang: Gang) -> None:
    members = gang.join_all()
    assert len({replace(member.round, first_rank=0) for member in members}) == 1
    assert [member.round.first_rank for member in members] == [0, 1, 2]
    assert (members[0].round.world_size, members[0].round.ranks_on_machine) == (3, 3)
    assert members[0].round.number == 1
    assert members[0].round.master_address in ("127.0.0.1", "::1")


def test_a_failed_node_stops_the_others_and_the_next_round_is_a_new_one(gang: Gang) -> None:
    first = gang.join_all()
    first[1].leave(FAILED)
    for member in (first[0], first[2]):
        assert lost(member) == ExitReport(ExitCode.RETRYABLE, "node 1: a rank was killed")
        member.leave(FAILED)
    second = gang.join_all()
    assert second[0].round.number == 2
    assert second[0].round.master_port != first[0].round.master_port


def test_a_node_that_has_saved_as_asked_is_no_failure_of_the_others(gang: Gang) -> None:
    """The other nodes of a round end as preempted, too, when one node was evicted and has saved.
    Otherwise they would count a restart although nothing had failed.
    """
    members = gang.join_all()
    members[1].leave(ExitReport(ExitCode.PREEMPTED, "stopped by a signal, saved at step 7"))
    for member in (members[0], members[2]):
        reason = "node 1: stopped by a signal, saved at step 7"
        assert lost(member) == ExitReport(ExitCode.PREEMPTED, reason)


def test_a_node_that_starts_again_ends_the_round_of_its_older_self(gang: Gang) -> None:
    """A node that starts again ends the round in which its earlier process was."""
    members = gang.join_all()
    gang.join_later(2, instance="2-2")
    ending = lost(members[0])
    assert ending is not None
    assert ending.reason == "node 2 was started again"


def test_a_round_starts_only_when_the_last_old_one_has_come_back(gang: Gang) -> None:
    """The next round starts only after every node of the old round has left it. A node that was
    told to stop, but has not ended its ranks yet, is waited for.
    """
    members = gang.join_all()
    members[2].leave(FAILED)
    assert lost(members[0]) is not None
    members[0].leave(FAILED)
    gang.join_later(0)
    gang.join_later(2)
    assert lost(members[1]) is not None  # node 1 is told to stop, but has not ended its ranks yet
    gang.wait_until_waiting(0)
    gang.wait_until_waiting(2)
    assert gang.coordinator.rounds == 1
    members[1].leave(FAILED)
    member = gang.join(hello(1))
    assert member is not None
    assert member.round.number == 2


def test_a_fatal_failure_is_fatal_for_all(gang: Gang) -> None:
    members = gang.join_all()
    members[2].leave(ExitReport(ExitCode.FATAL, "no dataset"))
    assert lost(members[0]) == ExitReport(ExitCode.FATAL, "node 2: no dataset")


def test_a_very_long_reason_is_told_with_its_end(gang: Gang) -> None:
    """A node may end with a reason that is longer than a message can be, such as a compiler's whole
    output. The other nodes get its beginning and its end, and the right exit code.
    """
    members = gang.join_all()
    members[2].leave(ExitReport(ExitCode.FATAL, f"no compiler: {'x' * 100_000} at the end"))
    ending = lost(members[0])
    assert ending
    assert ending.code == ExitCode.FATAL
    assert ending.reason.startswith("node 2: no compiler: xxx")
    assert ending.reason.endswith("xxx at the end")


def test_a_finished_node_stops_nobody(gang: Gang) -> None:
    members = gang.join_all()
    members[1].leave(ExitReport(ExitCode.DONE, "finished"))
    assert lost(members[0], seconds=1) is None


def test_finished_node_waits_for_the_others_without_a_limit(gang: Gang, clock: Clock) -> None:
    """A node that has finished waits for the others beyond every time limit, because they may have
    more to do, such as a last evaluation. It takes part in the next round if one of them fails.
    """
    members = gang.join_all()
    members[1].leave(DONE)
    waiting = gang.join_later(1)
    words = "waiting for node(s) 0, 2 to end; this one has finished"
    gang.wait_until_said(words)
    clock.turn()
    gang.wait_until(lambda: gang.said.count(words) > 1)  # it waits on beyond the limit
    members[0].leave(FAILED)
    assert lost(members[2]) is not None
    members[2].leave(FAILED)
    others = [gang.join_later(rank) for rank in (0, 2)]
    second = [future.result(timeout=LIMIT_SECONDS) for future in (waiting, *others)]
    assert [member and member.round.number for member in second] == [2, 2, 2]


def test_end_of_the_run_is_told_when_the_last_node_has_finished(gang: Gang) -> None:
    """The coordinator reports the end of the run once, when the last node has finished. No further
    round starts, although nodes may ask for one before they know of the end.
    """
    members = gang.join_all()
    for member in members[:2]:
        member.leave(DONE)
    waiting = [gang.join_later(rank) for rank in (0, 1)]
    gang.wait_until_said("waiting for node(s) 2 to end")
    assert gang.done == []
    members[2].leave(DONE)
    waiting.append(gang.join_later(2))
    gang.wait_until(lambda: gang.done == ["done"])
    gang.wait_until_waiting(2)
    assert gang.coordinator.rounds == 1
    assert not any(future.done() for future in waiting)


def test_the_end_of_node_0_is_noticed(gang: Gang) -> None:
    members = gang.join_all()
    gang.coordinator.close()
    ending = lost(members[1])
    assert ending is not None
    assert "connection to node 0 was lost" in ending.reason


@pytest.mark.parametrize("code", [ExitCode.FATAL, ExitCode.PREEMPTED])
def test_reason_of_node_0_stays_after_its_end(gang: Gang, code: ExitCode) -> None:
    """Node 0 may end while the ranks of another node still end. That node keeps the reason and the
    exit code that it was told. A lost connection would count as a failure that a restart may mend.
    """
    members = gang.join_all()
    members[0].leave(ExitReport(code, "what node 0 has met"))
    told = ExitReport(code, "node 0: what node 0 has met")
    assert lost(members[1]) == told
    gang.coordinator.close()
    for _ in range(3):
        assert members[1].poll_lost() == told


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (hello(1, digest="older"), "another run configuration or code"),
        (hello(1, nnodes=2), "node 1 of 2 is not one of the 3 nodes"),
        (hello(3), "node 3 of 3 is not one of the 3 nodes"),
    ],
)
def test_a_node_of_another_run_waits_outside_and_is_told_why(
    gang: Gang, clock: Clock, hello: Hello, words: str
) -> None:
    """A node with another configuration or another number of nodes is refused with the reason."""
    gang.refuse(hello, words, clock)


def test_a_name_that_does_not_resolve_is_waited_for_and_named() -> None:
    """A node that cannot resolve the name of node 0 gives up at its time limit with that name in
    its reason.
    """
    said: list[str] = []
    with pytest.raises(RetryableError, match=r"waiting for the DNS name nobody\.invalid"):
        join("nobody.invalid", 1, hello(1), KEY, 1, said.append, lambda: False)


STRANGERS = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x00" * 100_000,
    b"[1]\n",
    b"{}\n",
    b'{"ended":0}\n',
    b'{"node_rank": 1}\n',
    b"0" * 32 + b"\n" + b'x {"kind": "hello"}\n',
    b"0" * 32 + b"\n\n\n",
)


def test_strangers_at_the_port_disturb_nobody(gang: Gang) -> None:
    """Bytes that are no signed message cannot keep the nodes from meeting. Otherwise, for example,
    a line with a node rank and nothing else would end the coordinator's thread.
    """
    for data in STRANGERS:
        with socket.create_connection(("localhost", gang.port)) as stranger:
            try:
                stranger.sendall(data)
            except ConnectionError:
                continue
    assert len(gang.join_all()) == 3
    assert gang.coordinator.failure is None


class RawNode:
    """A node that holds the key of the run and sends whatever a test wants."""

    def __init__(self, port: int, key: bytes = KEY):
        connection = socket.create_connection(("localhost", port))
        self.lines = SignedLines(connection, key, is_server=False)

    def until_closed(self) -> list[object]:
        """Return all messages that arrive before the connection is closed, which has to happen in
        time.
        """
        heard: list[object] = []
        deadline = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < deadline:
            try:
                heard.extend(self.lines.receive())
            except ConnectionError:
                self.lines.close()
                return heard
            time.sleep(0.02)
        raise AssertionError(f"the connection was not closed; heard {heard}")


def test_last_words_are_heard_before_the_end_of_a_broken_connection() -> None:
    """A node's report of its end is read even if its connection is reset right after it. A
    connection is reset when one side closes it before it has read all answers, and the other side
    finds the reset behind the last message.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = socket.create_connection(server.getsockname())
        node = SignedLines(there, KEY, is_server=False)
        node_0 = SignedLines(server.accept()[0], KEY, is_server=True)
    node.send(Ended(0, "finished"))
    assert node.receive() == []  # the random number alone is no message
    there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    node.close()
    assert node_0.receive() == [Ended(0, "finished")]
    with pytest.raises(ConnectionError, match="reset by peer"):
        node_0.receive()
    node_0.close()


def test_last_message_of_a_node_is_read_before_the_coordinator_ends(
    gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node 0 closes its coordinator right after it has said how its ranks ended. The other nodes
    still hear that, and not only that the connection is lost.
    """
    members, is_held = gang.join_all(), threading.Event()

    def hold() -> None:
        is_held.set()
        gang.wait_until(lambda: gang.coordinator._closing)  # pyright: ignore

    monkeypatch.setattr(gang.coordinator, "_tell_waiting", hold)
    assert is_held.wait(LIMIT_SECONDS)
    members[0].leave(ExitReport(ExitCode.FATAL, "no dataset"))
    gang.coordinator.close()
    assert lost(members[1]) == ExitReport(ExitCode.FATAL, "node 0: no dataset")


def test_round_that_is_lost_at_once_is_not_begun() -> None:
    """A node may read in one go that a round starts and that the round is lost. If it missed the
    second, its ranks would wait for those of the other nodes.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        node = SignedLines(socket.create_connection(server.getsockname()), KEY, is_server=False)
        node_0 = SignedLines(server.accept()[0], KEY, is_server=True)
    node_0.send(Start(1, 2, [0, 1], 1, 2, 2, ""))
    node_0.send(Stop("node 2 is gone", int(ExitCode.RETRYABLE)))
    assert node_0.receive() == []  # the random number, after which the messages are sent
    messages = list[Message]()
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(messages) < 2:
        assert time.monotonic() < deadline
        messages += node.receive()
        time.sleep(0.02)
    member = membership._answer(node, messages)  # pyright: ignore
    assert isinstance(member, membership.RoundMember)
    assert member.poll_lost() == ExitReport(ExitCode.RETRYABLE, "node 2 is gone")
    node_0.close()
    node.close()


@pytest.mark.parametrize("message", [Start(1, 2, [0], 0, 1, 1, ""), hello(1), Ended(0, "")])
def test_members_that_say_nonsense_disturb_nobody(
    gang: Gang, message: Hello | Start | Ended
) -> None:
    """Messages that have a valid signature, but make no sense at that moment, cannot keep the nodes
    from meeting. Tried are an order to start, a second hello, and an end before the round has
    begun.
    """
    node = RawNode(gang.port)
    node.lines.send(hello(1, instance="confused"))
    node.lines.send(message)
    if not isinstance(message, Ended):
        node.until_closed()
    node.lines.close()
    assert len(gang.join_all()) == 3
    assert gang.coordinator.failure is None


def test_a_connection_dropped_in_a_batch_is_not_read() -> None:
    """The coordinator does not read a connection that it has just closed. The end of an old
    connection and the hello of its successor can come in one batch of events, and such a read would
    end the coordinator's thread.
    """
    port, joined, left = free_port(), list[int](), list[tuple[int, str]]()
    reception = Reception(
        port,
        hello(0),
        KEY,
        print,
        joined.append,
        lambda *_: None,
        lambda node, reason: left.append((node, reason)),
    )
    node = RawNode(port)
    node.lines.send(hello(1))
    deadline = time.monotonic() + LIMIT_SECONDS
    while not joined:
        assert time.monotonic() < deadline
        node.lines.receive()
        reception.serve(0.02)
    (peer,) = reception._peers  # pyright: ignore
    reception._drop(peer, "was started again")  # pyright: ignore
    reception._read(peer)  # pyright: ignore  # its event of the same batch
    reception._drop(peer, "lost the connection")  # pyright: ignore
    assert (joined, left) == ([1], [(1, "was started again")])
    node.lines.close()
    reception.close()


@pytest.fixture
def patient_gang() -> Iterator[Gang]:
    """Yield a gang whose coordinator does not take a node on a busy machine for one that
    has gone.
    """
    gang = Gang(ping_seconds=LIMIT_SECONDS)
    yield gang
    gang.close()


def test_a_rank_that_is_there_twice_is_named(patient_gang: Gang) -> None:
    """When two live entrypoints have the same node rank, the one that trains goes on, and a message
    names both. Otherwise they would throw each other out for ever, and nobody would know why.
    """
    gang = patient_gang
    members = gang.join_all()
    second = gang.join_later(1, instance="1-2")
    said = "node 1 is here twice: pod-1 at "
    deadline = time.monotonic() + LIMIT_SECONDS
    while not any(said in line for line in gang.said):
        assert time.monotonic() < deadline, gang.said
        assert [member.poll_lost() for member in members] == [None, None, None]
        time.sleep(0.02)
    assert not second.done()
    assert gang.coordinator.rounds == 1


def test_a_peer_without_the_key_can_neither_join_nor_end_a_round(gang: Gang, clock: Clock) -> None:
    """A peer without the key of the run can neither join a round nor end one. Otherwise any pod of
    the cluster could do so by one line of JSON.
    """
    gang.refuse(hello(1), "DISTTRAIN_RUN_KEY differs", clock, key=b"another key")
    gang.wait_until_said("closed a connection from")
    members = gang.join_all()
    intruder = RawNode(gang.port, key=b"")
    intruder.lines.send(hello(1, instance="1-2"))
    intruder.lines.send(Ended(78, "be gone"))
    intruder.until_closed()
    assert [member.poll_lost() for member in members] == [None, None, None]


def test_what_was_overheard_cannot_be_said_again(gang: Gang) -> None:
    """A recorded conversation of another connection is refused, because both sides sign with a
    random number that is new for each connection.
    """
    ours, theirs = socket.socketpair()
    recorded = SignedLines(ours, KEY, is_server=False)
    server = SignedLines(theirs, KEY, is_server=True)
    recorded.receive()
    recorded.send(hello(1))
    heard = theirs.recv(65536)
    ours.close()
    server.close()
    with socket.create_connection(("localhost", gang.port)) as replay:
        replay.sendall(heard)
        answer = b""
        while data := replay.recv(4096):
            answer += data
    assert b"another key" in answer
    assert len(gang.join_all()) == 3


def test_nodes_are_told_how_many_ranks_share_their_machine(gang: Gang) -> None:
    """Each node learns how many ranks share its machine, by which it divides the CPU threads. The
    ranks on other machines do not count.
    """
    nodes = [hello(0), hello(1, machine="two"), hello(2, machine="two")]
    members = gang.join_all(*nodes)
    assert [member.round.ranks_on_machine for member in members] == [1, 2, 2]
    assert all(member.round.own_address for member in members)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"kind": "hello"},
        {"kind": "hello", "node_rank": 1},
        {**to_mapping(hello(1)), "node_rank": "1"},
        {**to_mapping(hello(1)), "node_rank": True},
        {**to_mapping(hello(1)), "more": 1},
        {**to_mapping(Start(1, 2, [0, 1], 0, 1, 1, "")), "nodes": ["x"]},
        {**to_mapping(Start(1, 2, [0, 1], 0, 1, 1, "")), "nodes": [None]},
    ],
)
def test_only_whole_messages_are_messages(value: object) -> None:
    """A message with a missing, additional or wrong field raises a `ValueError`."""
    with pytest.raises(ValueError):  # noqa: PT011
        from_mapping(value)


def test_a_message_survives_the_way() -> None:
    """A message is the same after it was sent as a mapping."""
    for message in (hello(2), Start(1, 2, [0, 2], 1, 4, 3, "a"), Ended(0, "done")):
        assert from_mapping(to_mapping(message)) == message
