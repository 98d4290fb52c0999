"""The text format in which Prometheus reads metrics."""

from __future__ import annotations

import math

from trainer.monitoring.families import INFO, LOSS, RANK_SECONDS
from trainer.monitoring.text import Sample, as_text


def test_samples_are_grouped_under_type_and_help() -> None:
    samples = [
        Sample(RANK_SECONDS, 1.5, {"state": "waiting"}),
        Sample(LOSS, 2),
        Sample(RANK_SECONDS, 2**60, {"state": "training"}),
    ]
    lines = as_text(samples, {"run": "dev"}).splitlines()
    assert lines == [
        f"# HELP disttrain_rank_seconds_total {RANK_SECONDS.help}",
        "# TYPE disttrain_rank_seconds_total counter",
        'disttrain_rank_seconds_total{run="dev",state="waiting"} 1.5',
        'disttrain_rank_seconds_total{run="dev",state="training"} 1152921504606846976',
        f"# HELP disttrain_loss {LOSS.help}",
        "# TYPE disttrain_loss gauge",
        'disttrain_loss{run="dev"} 2',
    ]


def test_numbers_that_are_none_are_written_so() -> None:
    """Values that are not finite are written as Prometheus reads them."""
    values = [math.nan, math.inf, -math.inf]
    lines = as_text([Sample(LOSS, value) for value in values], {}).splitlines()
    assert [line.rpartition(" ")[2] for line in lines[2:]] == ["NaN", "+Inf", "-Inf"]


def test_signs_in_labels_are_escaped() -> None:
    """Quotes, backslashes and line ends in labels are escaped."""
    line = as_text([Sample(INFO, 1, {"dataset": 'a"b\\c\nd'})], {}).splitlines()[-1]
    assert line == r'disttrain_info{dataset="a\"b\\c\nd"} 1'
