"""The curves that the program of `runs` makes in the pod."""

import json
import tracemalloc
from itertools import count, pairwise
from pathlib import Path

import pytest

from cli.runs import pod_alive, pod_curves, pod_metrics
from infra.kube.api_server.exec_stream import SILENCE_SECONDS


@pytest.mark.parametrize("odd", ['"high"', "NaN", "Infinity", "[1]", "true"])
def test_value_that_is_no_number_is_none(tmp_path: Path, odd: str) -> None:
    """Values in the metrics that are no finite numbers are left out. A user's own program may write
    anything there.
    """
    path = tmp_path / "metrics.jsonl"
    lines = [f'{{"step": 1, "val_loss": {odd}, "loss": {odd}}}', '{"step": 2, "val_loss": 2.5}']
    path.write_text("\n".join([*lines, f'{{"step": {odd}}}', ""]))
    found = pod_metrics.metrics(path)
    assert (found["loss"], found["lowest_val_loss"], found["lowest_val_loss_step"]) == (
        None,
        2.5,
        2,
    )
    assert found["step"] in (1, 2)
    assert pod_curves.curves(path, 50)["val_loss"] == [(2, 2.5)]


def test_curves_keep_every_spike_and_both_ends(tmp_path: Path) -> None:
    """A long curve is thinned for the page and keeps its spikes, its first and its last step."""
    path = tmp_path / "metrics.jsonl"
    records = [{"step": n, "loss": 4.0 - n / 10_000, "val_loss": None} for n in range(1, 10_001)]
    records[7_123]["loss"], records[20]["loss"] = 99.0, None
    records[499]["val_loss"] = 3.5
    path.write_text("".join(json.dumps(each) + "\n" for each in records) + '{"step": 10001, "lo')
    found = pod_curves.curves(path, 50)
    steps = [step for step, _ in found["loss"]]
    assert (7_124, 99.0) in found["loss"]
    assert (steps[0], steps[-1]) == (1, 10_000)
    assert steps == sorted(set(steps))
    assert len(steps) <= 2 * 50 + 2
    assert found["val_loss"] == [(500, 3.5)]
    assert found["tokens_per_second"] == []
    assert set(pod_curves.curves(tmp_path / "none", 50)) == set(pod_curves.CURVES)


def test_short_curves_are_not_thinned() -> None:
    pairs = [(step, float(step % 7)) for step in range(100)]
    assert pod_curves.thinned(pairs, 50) == pairs


def test_curve_of_any_length_needs_little_memory(tmp_path: Path) -> None:
    """The pod has little memory, and a run that logs each step has millions of records.

    A restart goes back, so the steps are not in order.
    """
    path = tmp_path / "metrics.jsonl"
    steps = [*range(1, 30_001), *range(20_001, 60_001)]
    lines = (json.dumps({"step": step, "loss": 1.0 + step % 10}) for step in steps)
    path.write_text("".join(f"{line}\n" for line in lines) + '{"step": 41234, "loss": 77.5}\n')
    pod_curves.curves(path, 10)  # what Python keeps from the first call does not count
    tracemalloc.start()
    found = pod_curves.curves(path, 50)["loss"]
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most_bytes < 1 << 20
    assert (41_234, 77.5) in found
    assert (found[0][0], found[-1][0]) == (1, 60_000)
    gaps = [after[0] - before[0] for before, after in pairwise(found)]
    assert 0 <= min(gaps) <= max(gaps) < 60_000 / 50 * 2


def test_long_curve_gives_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program writes signs of life while it reads a long curve. The command takes a connection
    that brings no byte for a minute for dead.
    """
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n' * 10_000)
    seconds = count(step=0.1)
    monkeypatch.setattr(pod_alive.time, "monotonic", lambda: next(seconds))
    pod_curves.curves(tmp_path / "metrics.jsonl", 10)
    assert len(capsys.readouterr().err) > 10_000 * 0.1 / SILENCE_SECONDS
