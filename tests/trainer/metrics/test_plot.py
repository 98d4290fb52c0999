"""`python -m trainer plot`, which draws the curves of runs."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from trainer.__main__ import main
from trainer.program.progress import Point
from trainer.program.record import Curve


def record(step: int, **changes: object) -> str:
    """Return a line of `metrics.jsonl` for this step."""
    values: dict[str, object] = {
        "step": step,
        "loss": 4.0 / step,
        "val_loss": 4.1 / step if step % 10 == 0 else None,
        "tokens_per_second": 1000.0 + step,
        "tokens": step * 100,
    }
    return json.dumps({**values, **changes}) + "\n"


def test_a_run_is_drawn_as_a_png(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half_a_line = '{"step": 31, "lo'
    text = "".join(record(step) for step in range(1, 31)) + half_a_line
    (tmp_path / "metrics.jsonl").write_text(text)
    assert main(["plot", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "plot.png")
    with Image.open(tmp_path / "plot.png") as image:
        pixels = torch.from_numpy(np.array(image.convert("RGB")))
    for colour in ((0x9D, 0xB8, 0xD2), (0xC0, 0x39, 0x2B), (0x2C, 0x7A, 0x4B)):  # all three curves
        assert (pixels == torch.tensor(colour)).all(dim=2).sum() > 50


def test_a_run_without_validation_can_be_drawn_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(record(1))
    target = tmp_path / "other.png"
    assert main(["plot", str(tmp_path), "--output", str(target)]) == 0
    with Image.open(target) as image:
        assert image.format == "PNG"


@pytest.mark.parametrize("losses", [(4.0, None, 2.0), (None, None, None)])
def test_run_of_a_program_is_drawn(tmp_path: Path, losses: tuple[float | None, ...]) -> None:
    """The run of a user's program, which has no tokens and no speed, is drawn with those of its
    losses that are finite.
    """
    points = [Point(step, loss, None, 1000.0 + step) for step, loss in enumerate(losses, 1)]
    curve = Curve(tmp_path, world_size=2, say=pytest.fail)
    curve.add(points)
    curve.close()
    assert main(["plot", str(tmp_path)]) == 0
    with Image.open(tmp_path / "plot.png") as image:
        pixels = torch.from_numpy(np.array(image.convert("RGB")))
    drawn = (pixels == torch.tensor((0x9D, 0xB8, 0xD2))).all(dim=2).sum()
    assert (drawn > 50) == any(losses)
    assert not (pixels == torch.tensor((0x2C, 0x7A, 0x4B))).all(dim=2).any()  # no speed


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no metrics"), ("", "no record yet"), ("{\n", "damaged")],
)
def test_a_run_without_usable_metrics_is_named(
    tmp_path: Path, content: str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    assert main(["plot", str(tmp_path)]) == 78
    assert words in capsys.readouterr().err


def test_losses_of_several_runs_are_one_svg(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The losses of several runs are drawn into one SVG. On standard output is only the picture,
    because `disttrain runs compare` reads it.
    """
    for name, steps in (("first", 30), ("second & last", 20)):
        (tmp_path / name).mkdir()
        text = "".join(record(step) for step in range(1, steps + 1))
        (tmp_path / name / "metrics.jsonl").write_text(text)
    runs = [str(tmp_path / "first"), str(tmp_path / "second & last")]
    assert main(["plot", *runs, "--output", str(tmp_path / "two.svg")]) == 0
    capfdbinary.readouterr()
    assert main(["plot", *runs, "--output", "-"]) == 0
    picture = capfdbinary.readouterr().out
    assert picture == (tmp_path / "two.svg").read_bytes()
    root = ElementTree.fromstring(picture)
    words = {str(each.text) for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"first", "second & last", "second & last, validation, lowest 0.2050"} <= words


def test_picture_of_several_runs_needs_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metrics.jsonl").write_text(record(1))
    assert main(["plot", str(tmp_path), str(tmp_path)]) == 78
    assert "--output is missing" in capsys.readouterr().err


def test_damaged_line_is_left_out_and_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A damaged line is left out with a message, and all other lines are drawn."""
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(record(1).encode() + b'{"step": \xff\n' + record(2).encode())
    assert main(["plot", str(tmp_path), "--output", str(tmp_path / "plot.png")]) == 0
    assert "metrics.jsonl has 1 damaged line(s), which are left out" in capfd.readouterr().err
    assert (tmp_path / "plot.png").exists()
