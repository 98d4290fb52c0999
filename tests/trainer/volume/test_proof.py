"""The nodes of a round prove that they share one volume. Sockets and folders are real, and each
node is a thread.

Where nodes have different volumes, each node has a folder of its own.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from trainer.events.event import Name, event_file, parse_events
from trainer.events.log import EventLog
from trainer.launch.coordinator import Coordinator
from trainer.launch.exit_codes import ExitCode
from trainer.launch.gathering import RoundRules
from trainer.launch.membership import RoundMember, join
from trainer.launch.messages import Hello
from trainer.launch.status_files import ExitReport
from trainer.launch.stop_request import StopRequest
from trainer.volume import files
from trainer.volume.proof import FILE, MOST_LOOKED_FOR, VolumeProof, looked_for

LIMIT_SECONDS = 60  # the longest wait for what has to happen
SOON_SECONDS = 1  # the time limit where something never happens


class NoSignals(StopRequest):
    """A stop request that leaves the signals of this process alone."""

    def install(self) -> None:
        pass


@dataclass
class TestedNode:
    """One node as an entrypoint has it, without ranks."""

    __test__ = False
    rank: int
    proof: VolumeProof
    events: EventLog
    stop: StopRequest
    said: list[str]


class Nodes:
    """The nodes of a run, each with the folder that it takes for the run's folder."""

    def __init__(self, folders: Sequence[Path], limit_seconds: int = LIMIT_SECONDS):
        self.folders, self.port = folders, free_port()
        self.nodes = [self._node(rank, limit_seconds) for rank in range(len(folders))]
        self.proven = threading.Event()
        self._members = list[RoundMember]()
        self._pool = ThreadPoolExecutor(len(folders))
        count = len(folders)
        self._coordinator = Coordinator(
            self.port,
            self._hello(0),
            b"key",
            self.nodes[0].said.append,
            RoundRules(count, count),
            proven=self._all_proven,
        )

    def _node(self, rank: int, limit_seconds: int) -> TestedNode:
        folder, said, stop = self.folders[rank], list[str](), NoSignals()
        events = EventLog(event_file(folder, rank), said.append)
        proof = VolumeProof(folder, rank, limit_seconds, said.append, events, stop)
        return TestedNode(rank, proof, events, stop, said)

    def _all_proven(self, told: Any) -> None:
        self.nodes[0].proof.all_proven(told)
        self.proven.set()

    def _hello(self, rank: int) -> Hello:
        return Hello(rank, len(self.folders), "same", str(rank), "one", 1, f"pod-{rank}")

    def join_all(self, token: Callable[[int], str]) -> list[RoundMember]:
        """Let all nodes join, each with the token that `token` returns for it."""

        def join_one(rank: int) -> RoundMember:
            return self._join(rank, token(rank))

        members = list(self._pool.map(join_one, range(len(self.folders))))
        self._members += members  # they stay connected
        return members

    def prove(self, member: RoundMember, rank: int) -> ExitReport | None:
        """Let one node look for the files of the others, and return why it leaves the round, if it
        does.
        """
        tokens = dict(zip(member.round.nodes, member.round.proofs, strict=True))
        return self.nodes[rank].proof.prove(member, tokens)

    def _join(self, rank: int, token: str) -> RoundMember:
        node = self.nodes[rank]
        hello = replace(self._hello(rank), proof=token)
        member = join(
            "localhost", self.port, hello, b"key", LIMIT_SECONDS, node.said.append, lambda: False
        )
        assert member is not None
        return member

    def round(
        self, between: Callable[[], None] = lambda: None, leaves: bool = True
    ) -> list[ExitReport | None]:
        """Let all nodes write, join and look, and return why each leaves the round, or None.
        `between` is called when all have joined.

        A node that has a reason to leave the round does so at once, as the entrypoint does, unless
        `leaves` is false.
        """
        members = self.join_all(lambda rank: self.nodes[rank].proof.write())
        between()

        def prove(rank: int) -> ExitReport | None:
            report = self.prove(members[rank], rank)
            if report is not None and leaves:
                members[rank].leave(report)
                self.nodes[rank].proof.withdraw()
            return report

        return list(self._pool.map(prove, range(len(self.folders))))

    def look_briefly(self) -> None:
        """Let the nodes give up soon what they look for. Writes before this have their time."""
        for node in self.nodes:
            node.proof._limit = SOON_SECONDS  # pyright: ignore[reportPrivateUsage]

    def left(self) -> list[str]:
        """Return the names of the proof files in all folders."""
        found = {path for folder in self.folders for path in folder.glob(".volume-proof-*")}
        return sorted(path.name for path in found)

    def close(self) -> None:
        self._coordinator.close()
        for member in self._members:
            member.leave(ExitReport(ExitCode.RETRYABLE, "the test is over"))
        self._pool.shutdown()
        for node in self.nodes:
            node.events.close()


@pytest.fixture
def gather() -> Iterator[Callable[..., Nodes]]:
    """Yield a function that makes the nodes of a run, one for each folder, and closes them
    afterwards.
    """
    made = list[Nodes]()

    def make(*folders: Path, limit_seconds: int = LIMIT_SECONDS) -> Nodes:
        made.append(Nodes(folders, limit_seconds))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_shared_folder_is_proven_and_left_clean(
    tmp_path: Path, gather: Callable[..., Nodes]
) -> None:
    """Every node passes when all share a folder, and the figures are in the log, in the file and in
    each node's events.
    """
    nodes = gather(tmp_path, tmp_path, tmp_path)
    assert nodes.round() == [None, None, None]
    assert nodes.proven.wait(LIMIT_SECONDS)
    assert nodes.left() == []
    kept = json.loads((tmp_path / FILE).read_text())
    assert [each["node"] for each in kept["nodes"]] == [0, 1, 2]
    assert all(
        each[f"{what}_seconds"] >= 0
        for each in kept["nodes"]
        for what in ("write", "rename", "visible")
    )
    assert nodes.nodes[0].said[-1].startswith("volume: 3 nodes see each other's new files")
    for node in nodes.nodes:
        node.events.close()
        (event,), _ = parse_events(event_file(tmp_path, node.rank).read_bytes())
        assert event.name == Name.VOLUME_PROVEN
        assert event.values["nodes"] == 3


def test_folder_of_its_own_ends_the_run(tmp_path: Path, gather: Callable[..., Nodes]) -> None:
    """Nodes that share no folder, as with `host-path` on several machines, end with a fatal reason
    that says what is needed.
    """
    nodes = gather(tmp_path / "a", tmp_path / "b")
    reports = nodes.round(nodes.look_briefly, leaves=False)
    for report, other in zip(reports, (1, 0), strict=True):
        assert report is not None
        assert report.code == ExitCode.FATAL
        assert f"what node(s) {other} have written cannot be seen" in report.reason
        assert "the nodes do not share one volume" in report.reason
        assert "dataRoot" in report.reason
    for node in nodes.nodes:
        node.proof.withdraw()
    assert nodes.left() == []


def test_large_run_looks_for_neighbours_and_the_first() -> None:
    """In a large run each node looks only for the files of a few neighbours and of node 0, so that
    the number of looks does not grow with the square of the nodes. Each file is still looked for by
    many.
    """
    assert looked_for(1, [0, 1, 2]) == [2, 0]
    assert looked_for(5, [2, 5]) == [2]
    nodes = list(range(200))
    chosen = {node: looked_for(node, nodes) for node in nodes}
    assert all(
        node not in those and len(set(those)) == len(those) <= MOST_LOOKED_FOR + 1
        for node, those in chosen.items()
    )
    assert all(0 in those for node, those in chosen.items() if node)
    seen_by = {node: sum(node in those for those in chosen.values()) for node in nodes}
    assert min(seen_by.values()) == MOST_LOOKED_FOR


def test_reason_of_one_node_reaches_all(
    tmp_path: Path, gather: Callable[..., Nodes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that cannot write joins all the same, so that the others end with its reason.

    A write that fails stands in for a mount that is read-only on one node.
    """
    write = files.write_proof

    def read_only_on_node_1(folder: Path, node: int, token: str) -> files.Written:
        if node == 1:
            error = OSError(errno.EROFS, os.strerror(errno.EROFS))
            raise files.WriteError("writing a new file", error)
        return write(folder, node, token)

    monkeypatch.setattr(files, "write_proof", read_only_on_node_1)
    nodes = gather(tmp_path, tmp_path)
    other, own = nodes.round()
    assert own is not None
    assert other is not None
    assert (other.code, own.code) == (ExitCode.FATAL, ExitCode.FATAL)
    assert "mounted read-only" in own.reason
    assert other.reason == f"node 1: {own.reason}"
    assert any("the other nodes hear of it" in line for line in nodes.nodes[1].said)
    assert nodes.left() == []


def test_late_rename_is_waited_for(
    tmp_path: Path, gather: Callable[..., Nodes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node passes that sees another node's file only after it has looked in vain, but within the
    limit.

    A folder for each node stands in for a client of a file server that is late: the files are
    copied from one to the other once a node has looked in vain.
    """
    folders, copied, lock = (tmp_path / "a", tmp_path / "b"), list[Path](), threading.Lock()

    def bring_over() -> None:
        for here, there in (folders, folders[::-1]):
            for path in here.glob(".volume-proof-*"):
                if not (there / path.name).exists():
                    copied.append(Path(shutil.copy(path, there)))

    look_for = files.look_for

    def late(
        folder: Path, tokens: Mapping[int, str], goes_on: Callable[[], bool]
    ) -> dict[int, int]:
        def goes_on_late() -> bool:
            with lock:
                bring_over()
            return goes_on()

        return look_for(folder, tokens, goes_on_late)

    monkeypatch.setattr(files, "look_for", late)
    nodes = gather(*folders)
    assert nodes.round() == [None, None]
    assert len(copied) == 2


def test_vanished_own_file_is_tried_again(tmp_path: Path, gather: Callable[..., Nodes]) -> None:
    """A node whose own file has vanished may try again. Another pod with the same rank may have
    removed the file, which says nothing about the volume.
    """
    nodes = gather(tmp_path, tmp_path)

    def remove() -> None:
        (path,) = tmp_path.glob(".volume-proof-00001-*")
        path.unlink()

    other, own = nodes.round(remove)
    assert other is not None
    assert own is not None
    assert (other.code, own.code) == (ExitCode.RETRYABLE, ExitCode.RETRYABLE)
    assert "is gone again" in own.reason
    assert nodes.left() == []


def test_token_of_a_stranger_is_no_path(tmp_path: Path, gather: Callable[..., Nodes]) -> None:
    """A token from another machine that contains a path has no file read or removed elsewhere."""
    folder, elsewhere = tmp_path / "run", tmp_path / "kept"
    nodes = gather(folder, folder)
    (folder / ".volume-proof-00001-x").mkdir(parents=True)
    elsewhere.write_text("node 1 has written this, attempt x/../../kept\n")
    members = nodes.join_all(lambda rank: "x/../../kept" if rank else nodes.nodes[0].proof.write())
    nodes.look_briefly()
    report = nodes.prove(members[0], 0)
    assert report is not None
    assert report.code == ExitCode.FATAL
    assert elsewhere.exists()


def test_stop_ends_the_wait_for_others(tmp_path: Path, gather: Callable[..., Nodes]) -> None:
    """A pod that is asked to go does not wait for the volume any longer."""
    nodes = gather(tmp_path / "a", tmp_path / "b")
    for node in nodes.nodes:
        node.stop.requested = True
    reports = nodes.round(leaves=False)
    assert [report and report.code for report in reports] == [ExitCode.PREEMPTED] * 2
    deadline = time.monotonic() + LIMIT_SECONDS / 2  # the look ends long before its limit, too
    while any(thread.name == "volume" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_volume_without_answer_is_tried_again(
    tmp_path: Path, gather: Callable[..., Nodes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume that does not answer holds a node up until the limit, and the node may then try
    again.

    A write that waits for the end of the test stands in for one that hangs.
    """
    ends = threading.Event()
    monkeypatch.setattr(files, "write_proof", lambda *_: ends.wait())
    nodes = gather(tmp_path, tmp_path, limit_seconds=SOON_SECONDS)
    reports = nodes.round(leaves=False)
    ends.set()
    for report in reports:
        assert report is not None
        assert report.code == ExitCode.RETRYABLE
        assert "the volume does not answer: a write" in report.reason


def test_leftovers_of_killed_attempts_go(tmp_path: Path, gather: Callable[..., Nodes]) -> None:
    """A node removes the files that its own killed attempts have left."""
    for node in (0, 1):
        files.write_proof(tmp_path, node, "killed")
    nodes = gather(tmp_path, tmp_path)
    assert nodes.round() == [None, None]
    assert nodes.proven.wait(LIMIT_SECONDS)
    assert nodes.left() == []


def test_node_alone_has_nothing_to_compare(tmp_path: Path, gather: Callable[..., Nodes]) -> None:
    """A node that trains alone, as `train.nodes_min` allows, passes without figures."""
    nodes = gather(tmp_path)
    assert nodes.round() == [None]
    assert nodes.proven.wait(LIMIT_SECONDS)
    assert nodes.left() == []
    assert nodes.nodes[0].said == []
    assert not (tmp_path / FILE).exists()


def test_limit_of_zero_checks_nothing(tmp_path: Path, gather: Callable[..., Nodes]) -> None:
    """With `train.volume_timeout_seconds` set to 0 nothing is checked, and nodes without a shared
    volume train.
    """
    nodes = gather(tmp_path / "a", tmp_path / "b", limit_seconds=0)
    assert nodes.round() == [None, None]
    assert nodes.left() == []
    assert not nodes.proven.is_set()
