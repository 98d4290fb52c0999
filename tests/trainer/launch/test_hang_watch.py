"""When the entrypoint asks the ranks of a node where they are, by a clock that the test turns."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from trainer.launch import hang_watch
from trainer.launch.hang_watch import HangWatch
from trainer.launch.status_files import StatusFiles
from trainer.watch.beat import Beat, Phase


class Node:
    """A stand-in for a node: the heartbeats of two ranks, which the test moves, and the
    entrypoint's watch over them.
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch):
        self.status, self.now, self.asked = StatusFiles(directory), 1000.0, 0
        self.beats = [Beat(), Beat()]
        for rank, beat in enumerate(self.beats):
            beat.share(self.status.beat_file(rank))
        self.watch = HangWatch(1, 2, [os.getpid()] * 2, self.status)

        def answer(pid: int, path: Path) -> None:
            self.asked += 1
            path.write_text(f'Current thread 0x1:\n  File "/a/b/c/d.py", line {pid} in here\n')

        monkeypatch.setattr(hang_watch, "ask_for_stack", answer)

    def steps(self, count: int, seconds: float, first: int = 0) -> None:
        """Let all ranks make `count` steps of `seconds` each, the first with the number `first`."""
        for step in range(first, first + count):
            for beat in self.beats:
                beat.at(Phase.DATA, step)
            self.told_within(seconds)

    def told_within(self, seconds: float) -> list[float]:
        """Turn the clock on by `seconds`, and return after how many seconds each report of a hang
        came.
        """
        begin, told = self.now, list[float]()
        while self.now < begin + seconds:
            self.now += 0.1
            if states := self.watch.poll(self.now):
                told.append(self.now - begin)
                assert [(state.rank, state.node) for state in states] == [(2, 1), (3, 1)]
                assert states[0].place == f"b/c/d.py:{os.getpid()} (here)"
        return told


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Return the stand-in for a node with two ranks."""
    return Node(tmp_path, monkeypatch)


def test_ranks_that_stand_still_are_told_once_and_again_after_they_moved(node: Node) -> None:
    """Ranks that stand still for some seconds are reported once, and once more if they stand still
    again after further steps.
    """
    node.steps(5, seconds=1)
    (after,) = node.told_within(300)
    assert 15 < after < 20
    assert node.asked == 2
    node.steps(3, seconds=1, first=5)
    assert len(node.told_within(300)) == 1


def test_one_rank_that_moves_hides_no_other_that_does_not(node: Node) -> None:
    """A rank that stands still is reported although the other one goes from phase to phase."""
    node.steps(5, seconds=1)
    for _ in range(14):
        node.beats[1].phase(Phase.SAVE)
        assert not node.told_within(1)
    node.beats[1].phase(Phase.SAVE)
    assert node.told_within(5)


def test_a_slow_run_has_five_of_its_steps(node: Node) -> None:
    """A run with slow steps is reported only after the time of about five steps."""
    node.steps(6, seconds=20)
    (after,) = node.told_within(600)
    assert 80 <= after <= 106  # the last step was 20 s ago


@pytest.mark.parametrize("first", [0, 812])
def test_a_first_step_may_take_long_after_a_resume_too(node: Node, first: int) -> None:
    """The first step of a start is not reported as a hang, at step 0 as well as after a resume. It
    compiles, and has the time limit of the start.
    """
    node.beats[0].phase(Phase.PASSES)
    assert not node.told_within(300)
    for beat in node.beats:
        beat.at(Phase.DATA, first)
    assert not node.told_within(600)


def test_steps_that_nobody_saw_hide_no_hang(node: Node) -> None:
    """Ranks that stand still are reported also if the entrypoint has never seen two of their steps,
    because all of them were made between two of its checks.
    """
    for beat in node.beats:
        for step in range(36):
            beat.at(Phase.DATA, step)
    (after,) = node.told_within(300)
    assert 15 < after < 20


@pytest.mark.parametrize("phase", [Phase.EVALUATION, Phase.SAVE])
def test_an_evaluation_and_a_save_have_longer(node: Node, phase: Phase) -> None:
    """In an evaluation or a save, ranks may stand still for 60 s before they are reported."""
    node.steps(5, seconds=1)
    for beat in node.beats:
        beat.phase(phase)
    (after,) = node.told_within(300)
    assert 60 < after < 65


class Lonely(Node):
    """A stand-in for a node with a single rank, for which no other rank waits."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch):
        super().__init__(directory, monkeypatch)
        (self.beat,) = self.beats = [Beat()]
        self.beat.share(self.status.beat_file(0))
        self.watch = HangWatch(0, 0, [os.getpid()], self.status, is_alone=True)

    def told_within(self, seconds: float) -> list[float]:
        """Turn the clock on by `seconds`. Returns no reports, as tests of a single rank ask only
        for the end.
        """
        begin = self.now
        while self.now < begin + seconds:
            self.now += 0.1
            self.watch.poll(self.now)
        return []


@pytest.fixture
def lonely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lonely:
    """Return the stand-in for a node with a single rank, whose `train.timeout_seconds` is 60."""
    node = Lonely(tmp_path, monkeypatch)
    node.beat.bound_waits(60)
    return node


def test_single_rank_that_hangs_is_ended(lonely: Lonely) -> None:
    """A single rank that makes no step for longer than `train.timeout_seconds` is overdue, and the
    reason names its phase and step. Nobody waits for it in a collective, so its own steps tell what
    is usual.
    """
    lonely.steps(6, seconds=1)
    lonely.beat.phase(Phase.PASSES)
    assert 65 < overdue_after(lonely) < 68
    assert re.fullmatch(
        r"rank 0 has not come further for 6\d s in the forward and backward pass of step 6, longer "
        r"than train\.timeout_seconds \(60\) and than 5 usual steps",
        lonely.watch.overdue(lonely.now),
    )


def test_single_rank_is_ended_after_unseen_steps(lonely: Lonely) -> None:
    """A single rank whose steps were all made between two checks of the entrypoint is overdue after
    `train.timeout_seconds` like any other.
    """
    for step in range(36):
        lonely.beat.at(Phase.PASSES, step)
    assert 65 < overdue_after(lonely) < 68


def test_single_rank_with_slow_steps_has_five(lonely: Lonely) -> None:
    """A single rank whose steps are slow is overdue only after five of its usual steps."""
    lonely.steps(6, seconds=30)
    lonely.beat.phase(Phase.PASSES)
    assert 150 < overdue_after(lonely) < 158


@pytest.mark.parametrize("case", ["in its first steps", "data", "an evaluation", "a save", "wrote"])
def test_single_rank_may_take_its_time(lonely: Lonely, case: str) -> None:
    """A single rank is not overdue in its first steps, which may compile, nor while it waits for
    data, evaluates, saves, or a write goes on in the background.
    """
    lonely.steps(3 if case == "in its first steps" else 6, seconds=1)
    phases = {"data": Phase.DATA, "an evaluation": Phase.EVALUATION, "a save": Phase.SAVE}
    lonely.beat.phase(phases.get(case, Phase.PASSES))
    if case == "wrote":  # a write goes on in the background
        lonely.status.mark_saving(0, True)
    assert overdue_after(lonely) >= 600


def overdue_after(node: Node) -> float:
    """Return after how many seconds a rank is overdue, and at least 600 if none is by then."""
    begin = node.now
    while not node.watch.overdue(node.now) and node.now < begin + 600:
        node.told_within(1)
    return node.now - begin


def test_rank_waits_no_longer_than_it_may(node: Node) -> None:
    """A rank that waits in a collective is overdue some seconds after `train.timeout_seconds`, and
    no more once it has left the collective. NCCL has the same limit, and its message says more, so
    it gets these seconds to come first.
    """
    node.beats[1].bound_waits(60)
    node.beats[1].at(Phase.AGREEMENT, 11)
    node.beats[1].enter()
    assert 65 < overdue_after(node) < 68
    why = node.watch.overdue(node.now)
    assert re.fullmatch(
        r"rank 3 has waited for 6\d s in a collective of the agreement after the update of step "
        r"12, longer than train\.timeout_seconds \(60\)",
        why,
    )
    node.beats[1].leave()
    node.told_within(1)
    assert node.watch.overdue(node.now) == ""


def test_hang_is_told_before_its_round_ends(node: Node) -> None:
    """A hang is reported before its round is ended, also where ranks may wait for a few seconds
    only.
    """
    node.steps(5, seconds=1)
    for beat in node.beats:
        beat.bound_waits(5)
        beat.phase(Phase.PASSES)
        beat.enter()
    begin = node.now
    (after,) = node.told_within(9)
    assert 7 < after < 8
    assert node.now - begin < overdue_after(node) + 9 < 12


PHASES = {"in an evaluation": Phase.EVALUATION, "for another rank's data": Phase.DATA}


@pytest.mark.parametrize(
    "case", ["before its first step", "by itself", "in many collectives", *PHASES]
)
def test_rank_that_may_wait_goes_on(node: Node, case: str) -> None:
    """A rank is not overdue before its first step, which sets the limit, nor while it works outside
    of collectives or enters new ones again and again, as during a write. In an evaluation, which
    may compile, only the group's own limit holds. The wait for the data of all ranks has a limit of
    its own.
    """
    beat = node.beats[0]
    if case != "before its first step":
        beat.bound_waits(60)
    beat.at(PHASES.get(case, Phase.PASSES), 11)
    if case != "by itself":
        beat.enter()
    if case != "in many collectives":
        assert overdue_after(node) >= 600
        return
    for _ in range(20):
        node.told_within(10)
        assert node.watch.overdue(node.now) == ""
        beat.leave()
        beat.enter()
