"""A node is cordoned once for each fault, and nobody's word is overruled."""

import pytest

from infra.in_cluster.health_cordon import Decision, Mark, decide

NOTHING = Mark()
OURS = Mark(is_ours=True, because="a fault")


def test_healthy_node_is_left_alone() -> None:
    for is_cordoned in (False, True):
        assert decide(is_cordoned, NOTHING, {}) == Decision(NOTHING)
    assert NOTHING.to_text() is None


def test_unusable_node_is_cordoned_and_its_trainings_are_asked() -> None:
    decision = decide(False, NOTHING, {"xid": "Xid 79", "smi": "hangs"})
    assert decision == Decision(Mark(True, "Xid 79; hangs"), cordons=True, asks=True)


def test_node_that_somebody_has_cordoned_gets_no_mark() -> None:
    """Else it would look as if the cordon was ours. Its trainings are asked all the same."""
    assert decide(True, NOTHING, {"xid": "Xid 79"}) == Decision(NOTHING, asks=True)


def test_cordon_of_ours_stays_when_all_is_well_again() -> None:
    """Whether a machine is trusted again is for people to say."""
    assert decide(True, OURS, {}) == Decision(OURS)


def test_node_that_was_uncordoned_is_not_cordoned_for_the_same() -> None:
    accepted = decide(False, OURS, {"xid": "Xid 79"})
    assert accepted == Decision(Mark(accepted=("xid",)))
    assert decide(False, accepted.mark, {"xid": "Xid 79"}) == accepted
    new = decide(False, accepted.mark, {"xid": "Xid 79", "smi": "hangs"})
    assert new == Decision(Mark(True, "hangs", ("xid",)), cordons=True, asks=True)


def test_fault_that_was_accepted_and_mended_counts_when_it_comes_back() -> None:
    accepted = Mark(accepted=("smi",))
    assert decide(False, accepted, {}) == Decision(NOTHING)
    assert decide(False, NOTHING, {"smi": "hangs"}).cordons


@pytest.mark.parametrize("mark", [NOTHING, OURS, Mark(accepted=("a", "b"))])
def test_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert Mark.from_text(mark.to_text()) == mark


@pytest.mark.parametrize("text", ["", "{", "[]", '{"accepted": 3}', "null"])
def test_mark_that_somebody_has_spoilt_counts_as_none(text: str) -> None:
    assert Mark.from_text(text) == NOTHING
