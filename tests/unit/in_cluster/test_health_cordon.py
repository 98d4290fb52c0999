"""When the pod that watches a node cordons it: once for each fault, and never against a person's
decision.
"""

import pytest

from infra.in_cluster.health_cordon import Decision, Mark, decide

NOTHING = Mark()
OURS = Mark(is_ours=True, because="a fault")


def test_healthy_node_is_left_alone() -> None:
    """A node without a fault is not changed, whether somebody has cordoned it or not."""
    for is_cordoned in (False, True):
        assert decide(is_cordoned, NOTHING, {}) == Decision(NOTHING)
    assert NOTHING.to_text() is None


def test_unusable_node_is_cordoned_and_its_trainings_are_asked() -> None:
    """A node with a fault is cordoned, with the faults in its mark, and its trainings are asked to
    end.
    """
    decision = decide(False, NOTHING, {"xid": "Xid 79", "smi": "hangs"})
    assert decision == Decision(Mark(True, "Xid 79; hangs"), cordons=True, asks=True)


def test_node_that_somebody_has_cordoned_gets_no_mark() -> None:
    """A node that somebody else has cordoned gets no mark, with which the cordon would look like
    this program's. Its trainings are asked to end all the same.
    """
    assert decide(True, NOTHING, {"xid": "Xid 79"}) == Decision(NOTHING, asks=True)


def test_cordon_of_ours_stays_when_all_is_well_again() -> None:
    """A cordon of this program stays when the fault is over. People decide whether they trust a
    machine again.
    """
    assert decide(True, OURS, {}) == Decision(OURS)


def test_node_that_was_uncordoned_is_not_cordoned_for_the_same() -> None:
    """A node that somebody has uncordoned is not cordoned again for the same fault, but for another
    one.
    """
    accepted = decide(False, OURS, {"xid": "Xid 79"})
    assert accepted == Decision(Mark(accepted=("xid",)))
    assert decide(False, accepted.mark, {"xid": "Xid 79"}) == accepted
    new = decide(False, accepted.mark, {"xid": "Xid 79", "smi": "hangs"})
    assert new == Decision(Mark(True, "hangs", ("xid",)), cordons=True, asks=True)


def test_fault_that_was_accepted_and_mended_counts_when_it_comes_back() -> None:
    """A fault that somebody has accepted, and that was over since, counts again when it comes
    back.
    """
    accepted = Mark(accepted=("smi",))
    assert decide(False, accepted, {}) == Decision(NOTHING)
    assert decide(False, NOTHING, {"smi": "hangs"}).cordons


@pytest.mark.parametrize("mark", [NOTHING, OURS, Mark(accepted=("a", "b"))])
def test_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert Mark.from_text(mark.to_text()) == mark


@pytest.mark.parametrize("text", ["", "{", "[]", '{"accepted": 3}', "null"])
def test_mark_that_somebody_has_spoilt_counts_as_none(text: str) -> None:
    """A mark on the node that cannot be read counts as none."""
    assert Mark.from_text(text) == NOTHING
