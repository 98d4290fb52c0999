"""How steps and losses are read from the output of a program."""

import math
import re

import pytest

from trainer.program.progress import Point, ProgressReader, point_in

PATTERN = r"step (?P<step>[\d,]+)(?:/(?P<total>\d+))?(?: loss (?P<loss>\S+))?"


@pytest.mark.parametrize(
    ("line", "step", "total", "loss"),
    [
        (b"step 12/300 loss 0.25", 12, 300, 0.25),
        (b"[rank0] INFO step 7 loss 1e-3 lr 2e-4", 7, None, 1e-3),
        (b"step 1,200", 1200, None, None),
        (b"step 3 loss nan", 3, None, math.nan),
        (b"step 3 loss -inf", 3, None, math.nan),
        (b"step 3 loss what", 3, None, None),
        # A progress bar writes its line again and again; the last state counts.
        (b"step 1/9 loss 3.0\rstep 2/9 loss 2.0\r", 2, 9, 2.0),
        (b"\xff\xfe step 5 loss 2.5", 5, None, 2.5),
        pytest.param(b"step 5 loss 2.5 " + b"x" * 1_000_000, 5, None, 2.5, id="long line"),
        pytest.param(b"step 4\r" * 1000 + b"step 5 loss 2.5\r", 5, None, 2.5, id="long bar"),
    ],
)
def test_line_of_a_program_tells_step_and_loss(
    line: bytes, step: int, total: int | None, loss: float | None
) -> None:
    point = point_in(re.compile(PATTERN), line)
    assert point is not None
    assert (point.step, point.total) == (step, total)
    assert point.loss == (loss if loss is None else pytest.approx(loss, nan_ok=True))


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"steps", b"loss 0.3", b"step 99999999999999999999999 loss 1"),
        pytest.param(b"x" * 5000 + b" step 3", id="long line"),
        pytest.param(b"step 3\r" + b"x" * 5000, id="long state"),
    ],
)
def test_other_lines_tell_nothing(line: bytes) -> None:
    """Lines without a step, with an impossible one, or with one too far behind are no progress."""
    assert point_in(re.compile(PATTERN), line) is None


def test_only_the_lines_of_rank_0_are_read_and_all_are_counted() -> None:
    reader = ProgressReader(PATTERN)
    reader.take(b"step 1 loss 4\nhello\n", of_rank_0=True)
    reader.take(b"step 9 loss 9\n", of_rank_0=False)
    points, lines = reader.taken()
    assert [point.step for point in points] == [1]
    assert lines == 3
    assert reader.taken() == ([], 0)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize(
    ("printed", "steps"),
    [
        (b"step 1\nstep 12\r\nstep 3", [1, 12]),
        # Of the states that come together the last one counts.
        (b"\rstep 1\rstep 12\rstep 3\n", [1, 12, 3]),
        (b"x" * 20_000 + b"step 1\nstep 2\r", [2]),
    ],
    ids=["lines", "bar", "long"],
)
def test_step_is_read_however_output_is_cut(printed: bytes, steps: list[int], size: int) -> None:
    """A step is read once, however the output is cut into parts. A state of a progress bar is read
    as soon as the next one begins.
    """
    reader, found = ProgressReader(PATTERN), list[int]()
    for begin in range(0, len(printed), size):
        reader.take(printed[begin : begin + size], of_rank_0=True)
        found += [point.step for point in reader.taken()[0]]
    is_bar = printed.startswith(b"\r")
    assert found == (steps[-1:] if is_bar and size == 1000 else steps)


def test_words_leave_out_what_is_not_known() -> None:
    assert Point(3, None, None, 0.0).words() == "step 3"
    assert Point(3, 1.25, 10, 0.0).words() == "step 3/10 loss 1.2500"
    assert Point(3, math.nan, 10, 0.0).words() == "step 3/10 loss -"
