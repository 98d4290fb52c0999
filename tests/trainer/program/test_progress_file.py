"""A file in which a program tells its progress, which may be appended to, rewritten, cut off or
broken.
"""

import json
import math
import os
import threading
from pathlib import Path

import pytest

from tests.trainer.program.desk import Desk
from trainer.launch.exit_codes import ExitCode
from trainer.program import progress_file
from trainer.program.progress_file import ProgressFile, Tail, point_of_json

LINES = [b'{"step": 1, "loss": 0.5}', b'{"step": 2, "loss": 0.25}']


def written(path: Path, *lines: bytes, end: bytes = b"\n") -> Path:
    """Write these lines into the file, and return its path."""
    path.write_bytes(b"\n".join(lines) + end)
    return path


@pytest.mark.parametrize(
    ("line", "step", "total", "loss"),
    [
        (b'{"step": 12, "loss": 0.25, "total": 300}', 12, 300, 0.25),
        (b'{"loss": "0.5", "step": "7", "lr": 1e-4}', 7, None, 0.5),
        (b'{"step": 3.0, "loss": NaN}', 3, None, math.nan),
        (b'{"step": 3, "loss": null}', 3, None, None),
        (b'{"step": 3, "loss": [1]}', 3, None, None),
    ],
)
def test_line_of_json_tells_step_and_loss(
    line: bytes, step: int, total: int | None, loss: float | None
) -> None:
    point = point_of_json(line)
    assert point is not None
    assert (point.step, point.total) == (step, total)
    assert point.loss == (loss if loss is None else pytest.approx(loss, nan_ok=True))


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"12", b"[]", b'{"step": ', b'{"loss": 1}', b"\xff", b"[" * 100_000),
        *(b'{"step": true}', b'{"step": -1}', b'{"step": 1.5}', b'{"step": 1e300}'),
    ],
)
def test_other_json_tells_nothing(line: bytes) -> None:
    assert point_of_json(line) is None


def test_only_lines_since_the_start_are_new(tmp_path: Path) -> None:
    """Only lines that were written since the start are read, and each once it has its end."""
    tail = Tail(written(tmp_path / "log", *LINES), is_whole=lambda _: False)
    tail.skip()
    assert tail.new_lines() == []
    with (tmp_path / "log").open("ab") as file:
        file.write(b'{"step": 3}\n{"st')
    assert tail.new_lines() == [b'{"step": 3}']
    with (tmp_path / "log").open("ab") as file:
        file.write(b'ep": 4}\n')
    assert tail.new_lines() == [b'{"step": 4}']


@pytest.mark.parametrize("other", [b'{"step": 8}', b'{"step": 10}', b'{"s": 1}', b""])
def test_file_that_is_written_anew_is_read_anew(tmp_path: Path, other: bytes) -> None:
    """A file that is rewritten is read again, whether it is as long as before, longer, shorter, or
    empty at first.
    """
    place = written(tmp_path / "state", b'{"step": 9}', end=b"")
    tail = Tail(place, is_whole=lambda rest: point_of_json(rest) is not None)
    assert tail.new_lines() == [b'{"step": 9}']
    assert tail.new_lines() == []
    place.write_bytes(other)
    tail.new_lines()
    written(place, b'{"step": 11}', end=b"")
    assert tail.new_lines() == [b'{"step": 11}']


def test_file_may_come_late_and_go_again(tmp_path: Path) -> None:
    """A file may appear after the start, vanish and come back."""
    tail = Tail(tmp_path / "log", is_whole=lambda _: False)
    tail.skip()
    assert tail.new_lines() == []
    written(tmp_path / "log", *LINES)
    assert tail.new_lines() == LINES
    (tmp_path / "log").unlink()
    assert tail.new_lines() == []
    written(tmp_path / "log", *LINES)
    assert tail.new_lines() == LINES


def test_long_file_is_read_in_parts(tmp_path: Path) -> None:
    """A long file is read in parts, and a line that is too long is left out."""
    lines = [b"%07d" % number for number in range(1000)]
    tail = Tail(written(tmp_path / "log", *lines), is_whole=lambda _: False, most_bytes=100)
    found = list[bytes]()
    while more := tail.new_lines():
        found += more
    assert found == lines
    endless = Tail(tmp_path / "endless", is_whole=lambda _: False, most_bytes=100)
    (tmp_path / "endless").write_bytes(b"x" * 200 + b"y\nstep 1\n")
    assert [endless.new_lines() for _ in range(4)] == [[], [], [b"y", b"step 1"], []]


def looked_at(file: ProgressFile) -> list[int]:
    """Return the steps that one look finds, as the thread takes them."""
    file.look()
    return [point.step for point in file.taken()]


def indented(step: int) -> str:
    """Return a state as many libraries write it, whose `history` has steps of its own."""
    return json.dumps({"history": [{"step": 1}, {"step": 2}], "step": step, "loss": 1.5}, indent=2)


@pytest.mark.parametrize("end", ["", "\n"])
def test_object_over_several_lines_is_read_as_a_whole(tmp_path: Path, end: str) -> None:
    """A JSON object over several lines is read when it is whole. Here it is rewritten in place, and
    only a part of it is there at first.
    """
    place = tmp_path / "state.json"
    place.write_text(indented(3) + end)
    file = ProgressFile(place, None)
    file.skip()
    assert looked_at(file) == []
    place.write_text(indented(7) + end)
    assert looked_at(file) == [7]
    assert looked_at(file) == []
    text = indented(12) + end
    for length in (1, len(text) // 2, len(text) - 2):
        place.write_text(text[:length])
        assert looked_at(file) == []
    place.write_text(text)
    assert looked_at(file) == [12]
    assert looked_at(file) == []


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("end", ["", "\n"])
def test_step_before_a_long_part_that_stays_is_seen(
    tmp_path: Path, indent: int | None, end: str
) -> None:
    """A new step is seen although the rewritten file is as long as before and ends as before. A
    file that is only touched gives no step.
    """

    def text(step: int) -> str:
        return json.dumps({"step": step, "setup": "x" * 1000}, indent=indent) + end

    place = tmp_path / "state.json"
    place.write_text(text(12))
    file = ProgressFile(place, None)
    file.skip()
    os.utime(place, (1, 1))  # the content is still of an earlier start
    assert looked_at(file) == []
    for step in (13, 14):
        place.write_text(text(step))
        os.utime(place, (step, step))  # two writes may come in one tick of the file system's clock
        assert looked_at(file) == [step]
        assert looked_at(file) == []
    os.utime(place, (0, 0))
    assert looked_at(file) == []


STEP = r"step (?P<step>\d+)"


def test_state_without_an_end_is_read(tmp_path: Path) -> None:
    """A state without an end of line is read once it stays the same, because a line without an end
    may still go on.
    """
    place = tmp_path / "state"
    place.write_text("step 7")
    file = ProgressFile(place, STEP)
    file.skip()
    assert looked_at(file) + looked_at(file) == []
    for step in (1, 12, 3, 7):
        place.write_text(f"step {step}")
        assert looked_at(file) == []
        assert looked_at(file) == [step]
        assert looked_at(file) == []


def test_state_without_an_end_is_read_when_replaced(tmp_path: Path) -> None:
    """A state without an end of line is read when another one replaces it. A program may write more
    often than anybody looks, so that no state ever stays.
    """
    place = tmp_path / "state"
    file = ProgressFile(place, STEP)
    found = list[list[int]]()
    for step in (1, 12, 20, 31):  # the second one may be the first one, continued
        place.write_text(f"step {step}")
        found.append(looked_at(file))
    assert found == [[], [], [12], [20]]
    file.look(is_over=True)
    assert [point.step for point in file.taken()] == [31]


def test_line_whose_end_comes_late_is_read_once(tmp_path: Path) -> None:
    """A line whose end comes late is read once."""
    place = tmp_path / "log"
    file = ProgressFile(place, STEP)
    for text, steps in (("step 1", []), ("step 12\n", [12]), ("step 12\nstep 3", [])):
        place.write_text(text)
        assert looked_at(file) == steps
    place.write_text("step 4")
    assert looked_at(file) + looked_at(file) == [4]
    place.write_text("step 4\nstep 5\n")
    assert looked_at(file) == [5]


def test_volume_that_hangs_holds_up_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume that hangs does not hold up the end. A pipe stands in for the file, because opening
    it waits for somebody at the other end.
    """
    monkeypatch.setattr(progress_file, "LAST_LOOK_SECONDS", 0.01)
    place = tmp_path / "log"
    file = ProgressFile(place, None)
    file.begin()
    os.mkfifo(place)
    ending = threading.Thread(target=file.end, daemon=True)
    ending.start()
    ending.join(60)
    assert not ending.is_alive()
    os.close(os.open(place, os.O_RDWR))  # so the thread ends, too


def test_object_that_is_too_long_is_passed_over(tmp_path: Path) -> None:
    """An object that is too long is passed over in parts, each once, and gives no step. The last
    look at the end of a start goes on while there are new lines, and would otherwise never end.
    """
    place = tmp_path / "state.json"
    file = ProgressFile(place, None)
    state = {"weights": ["x" * 100] * 20_000}
    place.write_text(json.dumps({"step": 3, **state}, indent=2))
    assert [file.look() for _ in range(5)] == [True, True, True, False, False]
    place.write_text(json.dumps({"step": 4, **state}, indent=2))
    assert [file.look() for _ in range(5)] == [False] * 5  # it is as long as before
    assert file.taken() == []


COUNTS = """
    import json, os, pathlib, sys
    folder = pathlib.Path(os.environ["DISTTRAIN_CHECKPOINT_DIR"])
    saved = folder / "step"
    step = int(saved.read_text()) if saved.exists() else 0
    while step < 30:
        step += 1
        with (folder / "log.jsonl").open("a") as log:
            log.write(json.dumps({"step": step, "loss": 1 / step, "total": 30}) + "\\n")
        if step == 10:
            saved.write_text(str(step))
        if step == 15 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            sys.exit(5)
"""


def test_program_that_prints_nothing_is_seen_by_its_file(desk: Desk) -> None:
    """The steps of a program that prints nothing are read from its file, with the last one just
    before its end. Steps that are made again are once in the curve.
    """
    config = desk.python(COUNTS, progress_file="log.jsonl")
    assert desk.run(config) == ExitCode.DONE
    done = json.loads((config.run_dir / "done.json").read_text())
    assert (done["step"], done["loss"]) == (30, pytest.approx(1 / 30))
    lines = (config.run_dir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 31))
    assert "program: step 30/30 loss 0.0333" in desk.log()


def test_pattern_is_for_the_lines_of_the_file(desk: Desk) -> None:
    """With `progress_file`, the pattern is for the lines of that file, and what the program prints
    is not read.
    """
    script = 'echo "step 9 loss 9"; echo "it=4 l=0.5" >> "$DISTTRAIN_CHECKPOINT_DIR/log"'
    config = desk.config(
        "sh", "-c", script, progress=r"it=(?P<step>\d+) l=(?P<loss>\S+)", progress_file="log"
    )
    assert desk.run(config) == ExitCode.DONE
    assert json.loads((config.run_dir / "done.json").read_text())["step"] == 4
