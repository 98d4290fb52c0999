"""Writes measurements as a Markdown table into a section of a document."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.row import Row
from bench.runs import CHECKOUT
from trainer.parallel.cores import available_cores

DOCUMENT = CHECKOUT / "docs" / "benchmarks.md"
_BEGIN, _END = "<!-- table: begin -->", "<!-- table: end -->"
_MARKS = {True: "yes", False: "**no**", None: "-"}


def table(results: Mapping[str, Sequence[Mapping[str, Any]]], names: Sequence[str]) -> str:
    """The table with those of the rows `names` that were measured."""
    lines = ["| row | what | bar | measured | met | when and where |", "|---|---|---|---|---|---|"]
    for name in names:
        for row in results.get(name, ()):
            cells = (name, row["what"], row["bar"], row["measured"], _MARKS[row["met"]])
            lines.append(f"| {' | '.join(cells)} | {row['where']} |")
    return "\n".join(lines)


def when_and_load(load_before: float) -> str:
    """The last column: the date, and how busy the machine was.

    Args:
        load_before: os.getloadavg()[0] before the measurement.
    """
    date = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    load = f"load {load_before:.1f} to {os.getloadavg()[0]:.1f}"
    cores, own = os.cpu_count(), available_cores()
    return f"{date}, {load} on {cores} cores" + (f", of which it had {own}" if own != cores else "")


def publish(heading: str, name: str, rows: Sequence[Row], load_before: float) -> None:
    """Write rows as the table of a section of docs/benchmarks.md.

    Args:
        heading: of the section.
        name: the first column of each row.
        rows: what was measured just now.
        load_before: os.getloadavg()[0] before it was.
    """
    where = when_and_load(load_before)
    found = {name: [{**dataclasses.asdict(row), "where": where} for row in rows]}
    put_into_section(DOCUMENT, heading, table(found, [name]))


def put_into_section(document: Path, heading: str, text: str) -> None:
    """Replace the table in the section `heading`; a missing section or document is made."""
    content = document.read_text() if document.exists() else "# Benchmarks\n"
    if heading not in content.splitlines():
        content = f"{content.rstrip()}\n\n{heading}\n\n{_BEGIN}\n{_END}\n"
    before, _, section = content.partition(f"{heading}\n")
    head, _, rest = section.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    document.write_text(f"{before}{heading}\n{head}{_BEGIN}\n{text}\n{_END}{tail}")
