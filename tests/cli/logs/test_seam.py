"""Lines that both the volume and the API server have are shown once, and no other line is lost."""

from hypothesis import given
from hypothesis import strategies as st

from cli.logs.line import Line
from cli.logs.seam import Seam


def record(at: float, text: str, node: int = 0, rank: int | None = 4) -> Line:
    """Return a line as the volume has it, with its rank."""
    return Line(at, node, rank, text)


def api(at: float, text: str, node: int = 0) -> Line:
    """Return a line as the API server has it, without a rank."""
    return Line(at, node, None, text)


def test_a_line_of_both_is_shown_with_its_rank_whichever_comes_first() -> None:
    """A line of both sources is shown once and with its rank, whichever source gives it first."""
    seam = Seam(hold_seconds=6)
    assert seam.record(record(1, "volume first")) == [record(1, "volume first")]
    seam.api(api(1.01, "volume first"), now=0)
    seam.api(api(2.01, "api first"), now=0)
    assert seam.record(record(2, "api first")) == [record(2, "api first")]
    assert seam.rest() == []


def test_a_line_without_a_record_is_shown_after_a_while() -> None:
    """A line that only the API server has is shown once it has been held for `hold_seconds`."""
    seam = Seam(hold_seconds=6)
    seam.api(api(1, "no room"), now=100)
    assert seam.due(now=105) == []
    assert seam.due(now=106) == [api(1, "no room")]
    assert seam.due(now=200) == []


def test_a_record_that_comes_after_its_line_was_shown_is_left_out() -> None:
    """A record that comes after its line was shown is left out. The same words at a later time are
    shown.
    """
    seam = Seam(hold_seconds=6)
    seam.api(api(1.2, "late"), now=0)
    assert seam.due(now=7) == [api(1.2, "late")]
    assert seam.record(record(1, "late")) == []
    # A later line with the same words is shown.
    assert seam.record(record(50, "late")) == [record(50, "late")]


def test_older_lines_of_the_api_come_before_the_next_record() -> None:
    """Lines that only the API server has come before a later record, once the volume can have no
    older one. Lines of a pod that could not begin are of this kind.
    """
    seam = Seam(hold_seconds=6)
    seam.api(api(5, "no module", node=1), now=0)
    assert seam.record(record(10, "a")) == [record(10, "a")]  # the records of node 1 may be late
    assert seam.record(record(16, "b")) == [api(5, "no module", node=1), record(16, "b")]
    seam.api(api(17, "no room"), now=0)
    assert seam.record(record(18.5, "c")) == [api(17, "no room"), record(18.5, "c")]
    seam.api(api(20, "no room", node=1), now=0)
    found = seam.record(record(22, "d"), all_nodes=True)
    assert found == [api(20, "no room", node=1), record(22, "d")]


def test_equal_words_of_two_nodes_or_times_are_not_taken_for_one() -> None:
    """Lines with the same words are different lines if they are of two nodes, or far apart in
    time.
    """
    seam = Seam(hold_seconds=6)
    seam.seen(record(1, "same"))
    seam.api(api(1, "same", node=1), now=0)
    seam.api(api(100, "same"), now=0)
    assert seam.rest() == [api(1, "same", node=1), api(100, "same")]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.booleans()), max_size=40),
    st.integers(0, 5),
)
def test_each_line_is_shown_exactly_once(written: list[tuple[str, bool, bool]], lag: int) -> None:
    """Each line is shown once, whether it reaches the volume, the API server or both, and though
    the volume may be some lines late.

    Lines of both may have equal words. Those of one alone have words of their own here: a line of
    the volume and an equal one of the API server, a second apart, cannot be told from one line.
    """
    written = [
        (text if on_volume and at_api else f"{text} {number}", on_volume, at_api)
        for number, (text, on_volume, at_api) in enumerate(written)
    ]
    seam, shown = Seam(hold_seconds=1000), list[Line]()
    late: list[Line] = []
    for number, (text, on_volume, at_api) in enumerate(written):
        at = float(number)
        if at_api or not on_volume:
            seam.api(api(at + 0.5, text), now=at)
        if on_volume:
            late.append(record(at, text))
        if len(late) > lag:
            shown += seam.record(late.pop(0))
    for line in late:
        shown += seam.record(line)
    shown += seam.rest()
    assert sorted(line.text for line in shown) == sorted(text for text, *_ in written)


def test_a_history_that_began_long_ago_is_read_whole() -> None:
    """The newest record, which was read first, does not hide older records when the history is
    read.
    """
    seam = Seam(hold_seconds=6)
    seam.seen(record(1000, "step 9"))
    seam.api(api(1000, "step 9"), now=0)
    assert seam.record(record(10, "step 0")) == [record(10, "step 0")]
    seam.seen(record(20, "step 1"))
    assert seam.rest() == []
