"""Which nodes are in a round, when it starts, and when it ends to take a node back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import ConfigError, TrainConfig
from trainer.launch.gathering import Gathering, Place, RoundRules, places
from trainer.launch.messages import Hello

ALL_NEEDED = RoundRules(nodes=3, nodes_min=3, wait_seconds=60, return_seconds=300)
TWO_OF_FOUR = RoundRules(nodes=4, nodes_min=2, wait_seconds=60, return_seconds=300)


def running(members: list[int], rules: RoundRules = TWO_OF_FOUR) -> Gathering:
    """Return the gathering of a round of `members` in which all ranks had made a step at 100 s."""
    gathering = Gathering(rules)
    gathering.started(members)
    gathering.all_stepped(now=100)
    return gathering


def test_without_nodes_min_a_round_needs_all_nodes() -> None:
    """Without `train.nodes_min` a round needs all nodes: nothing is started with fewer, no round is
    ended to take a node back, and no waiting node is told that its round is sure to come.
    """
    gathering = Gathering(ALL_NEEDED)
    for is_running in (False, True):
        said = gathering.describe([0, 1], is_running)
        assert said == ("waiting for node(s) 2 to join", False)
    assert gathering.next_round([0, 1], now=0) == []
    assert gathering.next_round([0, 1], now=1e6) == []
    assert gathering.next_round([2, 1, 0], now=1e6) == [0, 1, 2]
    gathering.started([0, 1, 2])
    gathering.all_stepped(now=1e6)
    assert gathering.to_take_back([1], now=1e9) == []
    assert not gathering.lost(1, others=2, now=1e6)
    assert gathering.next_round([0, 2], now=2e6) == []


def test_a_round_starts_with_those_who_are_there_after_the_wait() -> None:
    """A round starts at once when all nodes are there, and otherwise with enough nodes after the
    wait.
    """
    gathering = Gathering(TWO_OF_FOUR)
    assert gathering.next_round([0], now=0) == []
    assert gathering.next_round([0, 3], now=500) == []
    assert gathering.next_round([0, 3], now=559) == []
    assert gathering.next_round([0, 3], now=560) == [0, 3]
    assert gathering.next_round([3, 2, 0, 1], now=501) == [0, 1, 2, 3]


def test_the_wait_begins_anew_when_too_few_are_left() -> None:
    """The wait for missing nodes begins again when so many leave that the rest is not enough for a
    round.
    """
    gathering = Gathering(TWO_OF_FOUR)
    assert gathering.next_round([0, 3], now=0) == []
    assert gathering.next_round([0], now=50) == []
    assert gathering.next_round([0, 1], now=70) == []
    assert gathering.next_round([0, 1], now=129) == []
    assert gathering.next_round([0, 1], now=130) == [0, 1]


def test_no_round_starts_without_node_0() -> None:
    gathering = Gathering(TWO_OF_FOUR)
    assert gathering.next_round([1, 2, 3], now=0) == []
    assert gathering.next_round([1, 2, 3], now=1e6) == []
    text, is_sure = gathering.describe([1, 2, 3], is_running=False)
    assert "waiting for node(s) 0 to join; a round needs node 0" in text
    assert not is_sure


def test_only_nodes_of_the_round_before_are_waited_for() -> None:
    """After a failure only nodes of the last round are waited for. Otherwise a machine that stays
    away for hours would cost one wait at each failure.
    """
    gathering = running([0, 1, 3])
    assert not gathering.lost(3, others=2, now=500)
    assert gathering.next_round([0, 1], now=510) == []  # 3 may come back at once, 2 is long gone
    assert gathering.next_round([0, 1, 3], now=511) == [0, 1, 3]
    assert gathering.next_round([0, 1], now=570) == [0, 1]


def test_a_node_is_taken_back_when_the_others_have_trained_for_a_while() -> None:
    """A node that waits outside is taken back `return_seconds` after all ranks of the round have
    made their first step, and not before, as a rank that still starts has nothing to save.
    """
    gathering = Gathering(TWO_OF_FOUR)
    gathering.started([0, 1])
    assert gathering.to_take_back([2], now=1e6) == []  # a rank that starts has nothing to save
    gathering.all_stepped(now=1e6)
    assert gathering.to_take_back([2], now=1e6 + 299) == []
    assert gathering.to_take_back([], now=1e6 + 300) == []
    assert gathering.to_take_back([3, 2], now=1e6 + 300) == [2, 3]


def test_a_node_that_ends_a_young_round_is_left_out_once() -> None:
    """A node that ends a round soon after its begin is left out of the next round. Otherwise a node
    whose processes fail at every start would keep the others from training.
    """
    gathering = running([0, 1, 2, 3])
    assert gathering.lost(2, others=3, now=399)
    assert gathering.next_round([0, 1, 2], now=400) == []  # 3 is ending its processes
    assert gathering.next_round([0, 1, 2, 3], now=401) == [0, 1, 3]
    gathering.started([0, 1, 3])
    assert gathering.to_take_back([2], now=1e6) == []
    gathering.all_stepped(now=410)
    assert gathering.to_take_back([2], now=709) == []
    assert gathering.to_take_back([2], now=710) == [2]
    assert gathering.next_round([0, 1, 2, 3], now=720) == [0, 1, 2, 3]


def test_a_node_that_was_left_out_is_not_waited_for() -> None:
    """A round that omits the node that ended the one before does not wait for that node either. It
    may be away for long, and the others would train later for nothing.
    """
    gathering = running([0, 1, 2, 3])
    assert gathering.lost(2, others=3, now=399)
    assert gathering.next_round([0, 1, 3], now=400) == [0, 1, 3]


def test_a_node_that_is_needed_is_never_left_out() -> None:
    """A node that fails in a young round is not left out if it is node 0, or if too few nodes would
    be left.
    """
    gathering = running([0, 1])
    assert not gathering.lost(1, others=1, now=101)
    assert not gathering.lost(0, others=3, now=101)
    assert gathering.next_round([0, 1], now=102) == [0, 1]
    gathering = running([0, 1, 2])
    assert gathering.lost(2, others=2, now=101)
    assert gathering.next_round([0, 2], now=102) == []  # 1 was there, and is waited for
    assert gathering.next_round([0, 2], now=162) == [0, 2]


@given(st.data())
def test_whatever_happens_a_round_has_node_0_and_enough_nodes(data: st.DataObject) -> None:
    """In any order of events a round has node 0 and at least `nodes_min` nodes, and one starts when
    all nodes have waited long enough.
    """
    nodes = data.draw(st.integers(1, 5))
    rules = RoundRules(nodes, data.draw(st.integers(1, nodes)), 10, 30)
    gathering, now, members = Gathering(rules), 0.0, list[int]()
    for _ in range(data.draw(st.integers(1, 30))):
        now += data.draw(st.integers(0, 40))
        outside = [node for node in range(nodes) if node not in members]
        waiting = data.draw(st.lists(st.sampled_from(outside), unique=True)) if outside else []
        if members:
            gathering.all_stepped(now)
            assert set(gathering.to_take_back(waiting, now + 30)) <= set(waiting)
            gathering.lost(data.draw(st.sampled_from(members)), len(members) - 1, now)
            members = []
        elif members := gathering.next_round(waiting, now):
            assert 0 in members
            assert members == sorted(set(members) & set(waiting))
            assert len(members) >= rules.nodes_min
            gathering.started(members)
    if not members:
        gathering.next_round(range(nodes), now)  # the wait has begun
        assert gathering.next_round(range(nodes), now + 10)  # nothing keeps a round from starting


@pytest.mark.parametrize(
    ("waiting", "is_running", "words", "is_sure"),
    [
        ([0], False, "node(s) 1, 2, 3 to join; a round needs node 0, and at least 2 of 4", False),
        ([0, 2], False, "node(s) 1, 3 to join; the round starts without them after 60 s", True),
        ([2], True, "the other nodes train without this one", True),
    ],
)
def test_a_waiting_node_is_told_what_it_waits_for(
    waiting: list[int], is_running: bool, words: str, is_sure: bool
) -> None:
    text, sure = Gathering(TWO_OF_FOUR).describe(waiting, is_running)
    assert words in text
    assert sure == is_sure


def test_ranks_of_a_smaller_round_have_no_gaps() -> None:
    """The ranks of a round without some nodes are numbered without gaps, also where nodes have
    different numbers of ranks and two of them share a machine.
    """
    hellos = [
        Hello(node, 5, "same", str(node), machine, ranks, f"pod-{node}")
        for node, machine, ranks in ((0, "a", 2), (2, "b", 1), (4, "a", 3))
    ]
    assert places(hellos) == [Place(0, 6, 5), Place(2, 6, 1), Place(3, 6, 5)]


def test_more_nodes_than_the_run_has_cannot_be_needed() -> None:
    """`train.nodes_min` above the number of nodes is refused, and a run is elastic only if it is
    below that number and not 0.
    """
    with pytest.raises(ConfigError, match=r"train\.nodes_min: 4 cannot be used: .* at most 3"):
        RoundRules.of(TrainConfig(nodes_min=4), nodes=3)
    assert not RoundRules.of(TrainConfig(nodes_min=0), nodes=3).is_elastic
    assert not RoundRules.of(TrainConfig(nodes_min=3), nodes=3).is_elastic
    assert RoundRules.of(TrainConfig(nodes_min=2), nodes=3).is_elastic
