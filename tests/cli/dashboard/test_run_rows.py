"""The runs of the cluster's records and the run folders on the volume become one list."""

from dataclasses import replace
from datetime import timedelta

from cli.dashboard.run_rows import number, rows_of
from tests.browser.recorded import NOW, folder, status
from tests.cli.records import RECORD

NAMES = {RECORD.owner: {"dev"}}


def test_run_of_a_stack_has_its_folder_and_its_newest_lines() -> None:
    """A run shows the step and loss of its log, and the validation loss of its folder on the
    volume.
    """
    seen = status("training", step=2860)
    (row,) = rows_of([(seen, RECORD)], NAMES, [folder("dev", 2800, False)], NOW)
    assert (row.run_name, row.owner, row.shown["name"]) == ("dev", RECORD.owner, "dev")
    assert row.shown["step"] == 2860  # from the log, which is newer than the answer of the volume
    assert row.shown["loss"] == 1.8307
    assert row.shown["val_loss"] == 1.9512  # only the volume has it
    assert row.shown["tokens_per_second"] == 48210.0


def test_run_without_lines_shows_what_its_folder_has() -> None:
    """A suspended run, which has no log, shows the step and loss of its folder, and no speed."""
    seen = status("suspended", "its next `pulumi up` resumes it", step=None)
    (row,) = rows_of([(seen, RECORD)], NAMES, [folder("dev", 2800, False)], NOW)
    assert row.shown["step"] == 2800
    assert row.shown["loss"] == 1.9021
    assert row.shown["tokens_per_second"] is None  # the run does not train now
    assert row.shown["eta"] == ""


def test_folder_that_no_stack_has_is_a_run_too() -> None:
    """A folder on the volume that belongs to no stack is listed as a run, as `kept` or
    `finished`.
    """
    folders = [folder("dev", 10, False), folder("old", 20, False), folder("done", 30, True)]
    rows = rows_of([(status("training"), RECORD)], NAMES, folders, NOW)
    assert [row.shown["name"] for row in rows] == ["dev", "old", "done"]
    assert [row.shown["state"] for row in rows] == ["training", "kept", "finished"]
    assert rows[1].owner == ""
    assert len({row.id for row in rows}) == 3


def test_run_whose_configuration_is_not_there_is_named_by_its_stack() -> None:
    """A run shows the name of its stack, and nothing of any folder, if its folder is not known: no
    configuration names it, or two do.
    """
    for owners in ({}, {RECORD.owner: {"one", "two"}}):
        row = rows_of([(status("waiting"), RECORD)], owners, [folder("dev", 1, False)], NOW)[0]
        assert (row.run_name, row.shown["name"]) == ("", "dev")
        assert "val_loss" not in row.shown  # no folder is guessed


def test_runs_of_the_same_stack_name_are_told_apart() -> None:
    other = replace(RECORD, owner="22222222-2222-3333-4444-555555555555")
    found = [(status("training"), RECORD), (status("waiting"), other)]
    assert len({row.id for row in rows_of(found, {}, [], NOW)}) == 2


def test_ages_are_by_the_clock_of_the_cluster() -> None:
    """The age of a state and of the last checkpoint is counted to the cluster's time, not this
    machine's.
    """
    seen = replace(status("stalled", "no step"), since=NOW - timedelta(minutes=5))
    (row,) = rows_of([(seen, RECORD)], NAMES, [], NOW)
    assert row.shown["since_seconds"] == 300.0
    assert row.shown["saved_age_seconds"] == 40.0
    assert row.shown["needs_attention"] is True


def test_warning_of_the_transport_is_that_of_status() -> None:
    """A run that is not over shows the trainer's warning about its transport. A finished run shows
    none.
    """
    seen = status("training")
    told = replace(seen.progress, transport="rank 0 by NCCL over TCP sockets")
    for state, warning in (("saving", told.transport), ("finished", "")):
        found = replace(seen, state=state, progress=told)
        (row,) = rows_of([(found, RECORD)], NAMES, [], NOW)
        assert row.shown["transport_warning"] == warning
        assert row.shown["is_over"] == (not warning)


def test_numbers_are_read_as_the_trainer_prints_them() -> None:
    """Numbers of the trainer's log become numbers. `nan`, infinity and what is no number become
    None.
    """
    assert [number(text) for text in ("1.8307", "4593", "-", "")] == [1.8307, 4593.0, None, None]
    assert [number(text) for text in ("nan", "-inf")] == [None, None]  # JSON cannot express them
