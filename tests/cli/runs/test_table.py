"""The list of runs that `./disttrain runs` shows to people and to programs."""

import json

import pytest

from cli.runs.in_use import Users
from cli.runs.table import (
    Room,
    as_json,
    as_table,
    compared,
    parse_room,
    parse_runs,
    problems,
    size,
)
from cli.spans import span_of_seconds
from tests.cli.runs.runs_on_volume import given

NOTHING = dict.fromkeys(
    [
        "checkpoint_step",
        "checkpoint_time",
        "step",
        "loss",
        "val_loss",
        "tokens",
        "tokens_per_second",
        "world_size",
        "lowest_val_loss",
        "lowest_val_loss_step",
    ]
)


def test_table_has_a_line_for_each_run() -> None:
    answer = {"now": 1300.0, "runs": [given("demo"), given("new", config="{", **NOTHING)]}
    runs = parse_runs(answer, Users({"demo": ["dev", "multipod"]}))
    assert as_table(runs).splitlines() == [
        "RUN   STEP       LOSS    VAL LOSS  CHECKPOINT            SIZE     USED BY",
        "demo  1200/2000  1.2500  1.5000    step 1000, 6 min ago  12.3 MB  dev, multipod",
        "new   -          -       -         -                     12.3 MB  -",
    ]
    assert as_table([]) == "no run is on the volume"


def test_json_has_numbers_and_what_was_not_seen() -> None:
    """`runs --json` has plain numbers, and says why the use of a run may not be known."""
    answer = {"now": 1300.0, "runs": [given("demo")]}
    users = Users({}, ["stack dev has no configuration"])
    found = json.loads(as_json(parse_runs(answer, users), users, Room(500, 2000)))
    assert found["unseen"] == ["stack dev has no configuration"]
    (run,) = found["runs"]
    assert (run["max_steps"], run["checkpoint_age_seconds"]) == (2000, 360.0)
    assert (run["size_bytes"], run["used_by"]) == (12_345_678, [])


def test_comparison_shows_the_lowest_validation_loss_and_its_step() -> None:
    runs = parse_runs({"now": 0.0, "runs": [given("a"), given("b", **NOTHING)]}, Users())
    head, first, second = compared(runs).splitlines()
    assert head.split("  ")[0] == "RUN"
    assert "1.4000 (step 800)  1,228,800  4,593     3" in first
    assert set(second.split()) == {"b", "-"}


def test_sizes_and_ages_are_short() -> None:
    """Sizes and ages are shown with few digits."""
    assert [size(n) for n in (0, 999, 1000, 12_345_678, 5e9, 7e12)] == [
        *("0 B", "999 B", "1.0 kB", "12.3 MB", "5.0 GB", "7.0 TB")
    ]
    found = [span_of_seconds(n) for n in (-1, 0, 119, 120, 7200, 172_800)]
    assert found == ["0 s", "0 s", "119 s", "2 min", "2 h", "2 d"]


def test_what_could_not_be_read_is_said() -> None:
    """What could not be read of a run is said below the list, with the name of the run. Programs
    get it as a field of the run.
    """
    answer = {"now": 1300.0, "runs": [given("demo"), given("mine", problem="no entry: mine")]}
    runs = parse_runs(answer, Users())
    (line,) = problems(runs)
    assert line.startswith("run mine could not be read in full")
    assert "no entry: mine" in line
    assert json.loads(as_json(runs, Users(), Room()))["runs"][1]["problem"] == "no entry: mine"


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[2Jgone", "bytes-\udcff"])
def test_odd_name_does_not_steer_the_terminal(name: str) -> None:
    """Control characters and other odd characters in a run's name are shown as escapes. Anybody who
    may write to the volume may have made such a folder.
    """
    answer = {"now": 1300.0, "runs": [given(name, problem=f"no entry: {name}")]}
    runs = parse_runs(answer, Users())
    for text in (as_table(runs), *problems(runs)):
        assert name not in text
        assert text.replace("\n", "").isprintable()
        text.encode()
    assert len(as_table(runs).splitlines()) == 2


def test_room_of_the_volume_is_said_if_it_is_known() -> None:
    """The free room of the volume is shown if the file system tells it. Some file systems tell
    nothing, or that they have no bytes at all.
    """
    known = {"free_bytes": 39_300_000_000, "total_bytes": 252_000_000_000}
    assert str(parse_room(known)) == "the volume has 39.3 GB free of 252.0 GB"
    for unknown in ({"free_bytes": None, "total_bytes": None}, {"free_bytes": 0, "total_bytes": 0}):
        assert str(parse_room(unknown)) == ""
    full = {"free_bytes": 0, "total_bytes": 252_000_000_000}
    assert str(parse_room(full)) == "the volume has 0 B free of 252.0 GB"
