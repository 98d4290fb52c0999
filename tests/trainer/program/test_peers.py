"""A program whose pods train alone is found by the connections that it does not have."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from trainer.program import peers
from trainer.program.peers import LOOK_SECONDS, LOOKS, REPEAT_SECONDS, PeersWatch, is_joined
from trainer.watch.connections import sockets_of, tables_of

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when ..."
PODS = {"here": "0100000A", "there": "0200000A", "loop": "0100007F", "web": "08080808"}
OWN, PROGRAMS = "11", "22"


def row(state: str, local: str, remote: str, inode: str) -> str:
    """Return a row of /proc/net/tcp; the addresses are such as `here:29500`."""
    ends = list[str]()
    for end in (local, remote):
        name, _, port = end.partition(":")
        ends.append(f"{PODS[name]}:{int(port):04X}")
    return f"   0: {ends[0]} {ends[1]} {state} 00000000:00000000 00:00000000 00000000  0 0 {inode}"


COORDINATOR = [
    row("0A", "here:29500", "loop:0", OWN),
    row("01", "here:29500", "there:40000", OWN),
]
LISTENS = row("0A", "here:29501", "loop:0", PROGRAMS)


@pytest.mark.parametrize(
    ("rows", "joined"),
    [
        ([LISTENS, row("01", "here:29501", "there:40001", PROGRAMS)], True),
        ([LISTENS, row("01", "here:29501", "here:40001", PROGRAMS)], False),
        ([LISTENS, row("01", "loop:29501", "loop:40001", PROGRAMS)], False),
        ([row("01", "here:40002", "there:29501", PROGRAMS)], True),
        ([row("06", "here:40002", "there:29501", "0")], False),
        ([row("01", "here:40002", "web:443", PROGRAMS)], False),
        ([], False),
    ],
    ids=["from a pod", "its own pod", "loopback", "to a pod", "ended", "a service", "none"],
)
def test_connection_with_another_pod_joins(rows: list[str], joined: bool) -> None:
    """Ranks of other pods connect to the store of rank 0, which is in the first pod. Connections
    within the pod, and with a service such as wandb, show no other pod.
    """
    tables = ["\n".join([HEAD, *COORDINATOR, *rows])]
    assert is_joined(tables, {OWN}) is joined


def test_table_without_the_own_connections_tells_nothing() -> None:
    """The entrypoints of the other pods are connected to that of the first one. If the system does
    not even show that, it is not known who is connected to the program.
    """
    assert is_joined(["\n".join([HEAD, LISTENS])], {OWN}) is None
    assert is_joined([], {OWN}) is None


def test_real_connections_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the kernel's own table, a connection of this process and one of another process are told
    apart. Here addresses of the loopback interface stand for the pods.
    """
    monkeypatch.setattr(peers, "is_loopback", lambda _: False)
    with ExitStack() as stack:

        def connect(port: int) -> None:
            pod = ("127.0.0.2", 0)
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 60, pod))

        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        own = int(server.getsockname()[1])
        connect(own)
        stack.enter_context(server.accept()[0])
        listens = "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        serves = "print(s.getsockname()[1], flush=True); c = s.accept(); print('up', flush=True)"
        command = [sys.executable, "-c", f"{listens}{serves}; input()"]
        program = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        stack.callback(program.kill)
        assert program.stdout
        other = int(program.stdout.readline())

        def joined() -> bool | None:
            lines = "".join(tables_of(os.getpid())).splitlines()
            ports = [f":{port:04X} " for port in (own, other)]
            rows = [line for line in lines if any(port in line for port in ports)]
            return is_joined(["\n".join([HEAD, *rows])], sockets_of(os.getpid()))

        assert joined() is False
        connect(other)
        assert program.stdout.readline() == b"up\n"
        assert joined() is True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time of the watch, in seconds."""
    now = [0.0]
    monkeypatch.setattr(peers, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def told(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, joined: bool | None, looks: int, moves: int
) -> list[str]:
    """Return what the watch says in so many looks; a step is made before the first `moves`."""
    said = list[str]()
    monkeypatch.setattr(peers, "_is_joined_now", lambda: joined)
    watch = PeersWatch(0, 2, said.append)
    for look in range(looks):
        clock[0] += LOOK_SECONDS
        watch.poll(min(look, moves - 1) if moves else None)
    return said


def test_steps_without_another_pod_are_told(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the program makes steps and has no connection with another pod, the ranks of each pod
    train alone, which is said again and again, as `status` reads the last lines.
    """
    (line,) = told(clock, monkeypatch, False, LOOKS + 1, LOOKS + 1)
    assert line.startswith("warning: the ranks are not those of the run: the program makes steps")
    assert "MASTER_ADDR" in line
    repeats = int(REPEAT_SECONDS / LOOK_SECONDS)
    assert len(told(clock, monkeypatch, False, LOOKS + 1 + repeats, LOOKS + 1 + repeats)) == 2


@pytest.mark.parametrize(
    ("joined", "moves"),
    [(True, 20), (None, 20), (False, 0), (False, LOOKS)],
    ids=["joined", "not seen", "no step yet", "after the last step"],
)
def test_nothing_is_told_without_a_sign(
    joined: bool | None, moves: int, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is said if there is such a connection or the system shows none, and as long as no
    steps are made: a program may prepare its data before it connects, and save when it has
    disconnected.
    """
    assert told(clock, monkeypatch, joined, 20, moves) == []


@pytest.mark.parametrize(("place", "nodes"), [(1, 2), (0, 1)])
def test_only_the_first_of_several_pods_looks(
    place: int, nodes: int, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps and the store of rank 0 are in the first pod, and a single pod has no others."""
    monkeypatch.setattr(peers, "_is_joined_now", lambda: pytest.fail("it looks"))
    watch = PeersWatch(place, nodes, print)
    for step in range(9):
        clock[0] += LOOK_SECONDS
        watch.poll(step)
