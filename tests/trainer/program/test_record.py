"""What the launcher keeps about a program in the run's folder."""

import json
import math
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from trainer.checkpoint.run_identity import read_done_marker
from trainer.config import RunConfig
from trainer.launch.exit_codes import FatalError
from trainer.program.progress import Point
from trainer.program.record import (
    Curve,
    last_step,
    newest_change,
    read_program_done,
    write_program_done,
)


def config(root: Path, **program: Any) -> RunConfig:
    """Return a run with these settings of its program."""
    given = {"command": ["true"], **program}
    return RunConfig.from_mapping({"run_name": "r", "data_root": str(root), "program": given})


def point(step: int) -> Point:
    return Point(step, step / 8, None, 1e9 + step)


def record_start(run_dir: Path, steps: range) -> None:
    """Write the curve of a start that makes these steps."""
    curve = Curve(run_dir, 2, pytest.fail)
    for step in steps:
        curve.add([point(step)])
    curve.close()


def test_another_command_or_other_files_have_not_ended_yet(tmp_path: Path) -> None:
    """The marker of a finished run does not count for another command or other files, so that a
    program with more steps to make goes on. A change of only the pattern does not matter.
    """
    done = config(tmp_path, files="abc")
    write_program_done(done, point(7))
    marker = read_program_done(done)
    assert marker is not None
    assert (marker["step"], marker["loss"]) == (7, 0.875)
    assert read_program_done(config(tmp_path, command=["false"], files="abc")) is None
    assert read_program_done(config(tmp_path, files="abd")) is None
    assert read_program_done(config(tmp_path, files="abc", per="node")) is None
    assert read_program_done(config(tmp_path, files="abc", progress="(?P<step>1)")) is not None


def test_program_in_another_image_has_not_ended(tmp_path: Path) -> None:
    """The marker of a finished run does not count for another image, which may have other code.
    With `program.build` the name of the image follows the content of the folder.
    """
    write_program_done(config(tmp_path, image="mine:1"), point(7))
    assert read_program_done(config(tmp_path, image="mine:1")) is not None
    assert read_program_done(config(tmp_path, image="mine:2")) is None
    assert read_program_done(config(tmp_path)) is None


def test_marker_without_an_image_counts_for_any(tmp_path: Path) -> None:
    """A marker of an earlier version, which names no image, counts for any image. No finished run
    may start again because of an update.
    """
    write_program_done(config(tmp_path, image="mine:1"), point(7))
    place = config(tmp_path).run_dir / "done.json"
    marker = json.loads(place.read_text())
    del marker["image"]
    place.write_text(json.dumps(marker))
    assert read_program_done(config(tmp_path, image="mine:1")) is not None
    assert read_program_done(config(tmp_path)) is not None


def test_folder_of_a_run_of_our_trainer_is_left_alone(tmp_path: Path) -> None:
    """A program is refused a folder in which our trainer has finished a run."""
    run = config(tmp_path)
    run.run_dir.mkdir(parents=True)
    (run.run_dir / "done.json").write_text('{"max_steps": 5, "identity": {}}')
    with pytest.raises(FatalError, match="Choose another runName"):
        read_program_done(run)


def test_folder_of_a_finished_program_is_left_alone(tmp_path: Path) -> None:
    """Our trainer is refused a folder in which a program has finished, with a message instead of a
    traceback.
    """
    write_program_done(config(tmp_path), point(7))
    given = {"run_name": "r", "data_root": str(tmp_path), "dataset": {"file": "/text"}}
    with pytest.raises(FatalError, match="Choose another runName"):
        read_done_marker(RunConfig.from_mapping(given))


def test_resumed_start_replaces_the_steps_that_it_makes_again(tmp_path: Path) -> None:
    """A start that continues from an earlier step replaces the steps that it makes again, and drops
    a line that a crash has cut off.
    """
    record_start(tmp_path, range(1, 8))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "lo')  # a crash has cut it off
    record_start(tmp_path, range(5, 11))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["step"] for record in records] == list(range(1, 11))
    assert records[0] == {"step": 1, "loss": 0.125, "world_size": 2, "unix_time": 1e9 + 1}


def test_last_step_of_a_long_curve_is_found(tmp_path: Path) -> None:
    """The last step of a long curve is found, although only the end of the file is read and a crash
    may have cut off its last line.
    """
    assert last_step(tmp_path) == 0
    record_start(tmp_path, range(1, 3001))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3001, "lo')
    assert last_step(tmp_path) == 3000


def test_memory_does_not_grow_with_the_curve(tmp_path: Path) -> None:
    """A start reads a long curve with as little memory as a short one. The launcher's memory is the
    pod's, and a run of months has millions of lines.
    """

    def peak_bytes(steps: int) -> int:
        lines = (json.dumps({"step": step, "loss": 1.5, "world_size": 2}) for step in range(steps))
        (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
        tracemalloc.start()
        try:
            record_start(tmp_path, range(steps - 1, steps))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = 200, 20_000
    peak_bytes(few)
    assert peak_bytes(many) < 2 * peak_bytes(few)
    peak_bytes(many)
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == many


def test_loss_that_is_not_finite_is_null(tmp_path: Path) -> None:
    """A loss that is not finite is stored as null, as in our trainer's records, and a step without
    a loss has no such key.
    """
    curve = Curve(tmp_path, 1, pytest.fail)
    curve.add([Point(1, math.nan, None, 1e9), Point(2, None, None, 1e9)])
    curve.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    common = {"world_size": 1, "unix_time": 1e9}
    assert json.loads(lines[0]) == {"step": 1, "loss": None, **common}
    assert json.loads(lines[1]) == {"step": 2, **common}
    write_program_done(config(tmp_path), Point(3, math.nan, None, 1e9))
    marker = read_program_done(config(tmp_path))
    assert marker is not None
    assert (marker["step"], marker["loss"]) == (3, None)


def test_curve_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    """A curve that cannot be written gives one message and ends nothing."""
    (tmp_path / "file").write_text("")
    said = list[str]()
    curve = Curve(tmp_path / "file" / "run", 1, said.append)
    curve.add([point(1)])
    curve.add([point(2)])
    curve.close()
    assert len(said) == 1
    assert "cannot be written" in said[0]


def test_newest_change_grows_with_each_file_that_is_written(tmp_path: Path) -> None:
    """The time of the newest change grows with each file that is written, by which the launcher
    knows that a start has come further than the one before.
    """
    assert newest_change(tmp_path / "missing") == ""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").write_text("")
    os.utime(tmp_path / "deep" / "a", ns=(5, 5))
    before = newest_change(tmp_path)
    (tmp_path / "b").write_text("")
    os.utime(tmp_path / "b", ns=(10, 10))
    assert "" < before < newest_change(tmp_path)


def test_curve_with_bytes_that_are_no_text_goes_on(tmp_path: Path) -> None:
    """A curve with bytes that are no text is continued. Otherwise they would end the thread that
    writes it, without a word.
    """
    record_start(tmp_path, range(1, 3))
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(file.read_bytes() + b"\xff\xfe damaged\n")
    record_start(tmp_path, range(2, 4))
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 2, 3]
