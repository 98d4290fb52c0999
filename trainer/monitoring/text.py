"""Writes samples in Prometheus' text format.

https://prometheus.io/docs/instrumenting/exposition_formats/ describes the format (version 0.0.4).

This module does no input or output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainer.monitoring.families import Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Sample:
    """One number of a metric, with its labels."""

    family: Family
    value: float
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


def as_text(samples: Sequence[Sample], common: Mapping[str, str]) -> str:
    """Return the page with the samples, grouped by family; all get the labels `common` too."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.family.name, []).append(sample)
    lines = list[str]()
    for name, group in groups.items():
        family = group[0].family
        lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind.value}"]
        lines += [f"{name}{_labels({**common, **s.labels})} {_number(s.value)}" for s in group]
    return "\n".join([*lines, ""])


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)
