"""What the dashboard shows of one run: its ranks, its time and its log."""

from typing import Any

import pytest

from cli.dashboard.details import goodput_of, log_of, rank_rows
from cli.logs.line import Line
from tests.browser.recorded import NOW, lines, pods
from tests.trainer.events.stories import Story
from trainer.events.event import Events
from trainer.events.span import Kind
from trainer.watch.slow import Cause, Finding


def test_each_rank_has_a_row_with_its_pod_and_machine() -> None:
    rows = rank_rows(list(reversed(pods())), NOW)
    assert [(row["rank"], row["pod"], row["machine"]) for row in rows] == [
        (0, "train-multipod-0", "gpu-0.example.org"),
        (1, "train-multipod-0", "gpu-0.example.org"),
        (2, "train-multipod-1", "gpu-1.example.org"),
        (3, "train-multipod-1", "gpu-1.example.org"),
    ]
    assert [row["restarts"] for row in rows] == [0, 0, 1, 1]
    assert {row["state"] for row in rows} == {"Ready"}


def test_ranks_share_the_speed_and_the_slow_one_is_marked() -> None:
    """Each rank shows an equal part of the run's speed, and the slow rank alone shows the cause.
    The cause is read from the line that the trainer prints.
    """
    for rank in (0, 3):
        finding = Finding(Cause.DATA, rank, rank // 2, 1.8, 0.18, 0.1)
        rows = rank_rows(pods(), NOW, 1000.0, str(finding))
        assert [row["tokens_per_second"] for row in rows] == [250.0] * 4
        words = "1.8x as long: data loading"
        assert [row["slow"] for row in rows] == [words * (n == rank) for n in range(4)]


def test_network_that_is_slow_is_no_single_rank() -> None:
    """When the trainer finds the network slow, no rank is marked as slow."""
    finding = str(Finding(Cause.NETWORK, None, None, 1.8, 0.18, 0.1))
    rows = rank_rows(pods(), NOW, None, finding)
    assert [(row["tokens_per_second"], row["slow"]) for row in rows] == [(None, "")] * 4


def test_pod_that_does_not_start_says_why() -> None:
    """The row of a pod that does not start shows its state and the reason."""
    row = rank_rows(pods(ready=1), NOW)[2]
    assert not row["is_ready"]
    assert row["state"].startswith("ErrImagePull")
    assert row["problem"] == "pod train-multipod-1: ErrImagePull: not found"


def test_pod_of_which_little_is_known_is_one_rank() -> None:
    """A pod whose manifest says almost nothing is shown as one rank, without machine and age."""
    bare: dict[str, Any] = {"metadata": {"name": "train-x"}, "spec": {}, "status": {}}
    (row,) = rank_rows([bare], NOW)
    assert (row["rank"], row["machine"], row["age_seconds"]) == (0, "", None)


def test_kinds_of_time_add_up_to_the_wall_clock() -> None:
    """The seconds of all kinds of time together are the wall clock time of the run."""
    told = Story()
    told.starts(1000, 100, 100, 100)
    told.trains(100, 50)
    told.saves(200)
    told.finishes()
    found = goodput_of(Events.of(told.content))
    assert sum(each["seconds"] for each in found["kinds"]) == pytest.approx(found["wall_seconds"])
    by_name = {each["kind"]: each["seconds"] for each in found["kinds"]}
    assert by_name["productive"] == told.spent[Kind.PRODUCTIVE] / 1000
    assert list(by_name) == [kind.value for kind in Kind]


def test_run_without_events_has_no_time() -> None:
    assert goodput_of(Events.of(b""))["wall_seconds"] == 0


def test_lines_have_their_rank_and_are_explained_once() -> None:
    """A node's own lines are shown without the label with which they begin, and a repeated error is
    explained once.
    """
    twice = [*lines(), Line(1.0, 1, 3, "NVRM: Xid (PCI:0000:3b:00): 63, pid=2, row remapper")]
    found = log_of(twice, ["not shown: the log of pod x"])
    meanings = [line["meaning"] for line in found["lines"] if "meaning" in line]
    assert meanings == [
        "Xid 63 of GPU PCI:0000:3b:00: a faulty row or page of GPU memory was recorded for "
        "replacement; reset the GPU when it is free, so that this takes effect"
    ]
    # The line is shown without the label of its node.
    assert found["lines"][51]["text"] == "round 2: 2 node(s) x 2 rank(s)"
    assert found["notes"] == ["not shown: the log of pod x"]
