"""Keeps measurements as JSON, and writes them as a Markdown table into a section of a document."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeAlias

from bench.row import Row
from bench.runs import CHECKOUT
from trainer.parallel.cores import available_cores

Json: TypeAlias = dict[str, Any]
"""A row as the files of results keep it: the fields of `Row`, and `where` for the last column."""
DOCUMENT = CHECKOUT / "docs" / "benchmarks.md"
_BEGIN, _END = "<!-- table: begin -->", "<!-- table: end -->"
_MARKS = {True: "yes", False: "**no**", None: "-"}


def table(results: Mapping[str, Sequence[Mapping[str, Any]]], names: Sequence[str]) -> str:
    """The table with those rows among `names` that were measured."""
    lines = ["| row | what | bar | measured | met | when and where |", "|---|---|---|---|---|---|"]
    for name in names:
        for row in results.get(name, ()):
            cells = (name, row["what"], row["bar"], row["measured"], _MARKS[row["met"]])
            lines.append(f"| {' | '.join(cells)} | {row['where']} |")
    return "\n".join(lines)


def when_and_load(load_before: float) -> str:
    """The text of the last column: the date, and how busy the machine was.

    Args:
        load_before: os.getloadavg()[0] before the measurement.
    """
    date = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    load = f"load {load_before:.1f} to {os.getloadavg()[0]:.1f}"
    cores, own = os.cpu_count(), available_cores()
    return f"{date}, {load} on {cores} cores" + (f", of which it had {own}" if own != cores else "")


def with_where(rows: Sequence[Row], where: str) -> list[Json]:
    """The rows as the files of results keep them. `where` is the text of the last column."""
    return [{**dataclasses.asdict(row), "where": where} for row in rows]


def read_results(file: Path) -> dict[str, list[Json]]:
    """The rows in a file of results, by the text of their first column; empty without the file."""
    return json.loads(file.read_text()) if file.exists() else {}


def keep_results(
    file: Path, heading: str, order: Sequence[str], name: str, rows: Sequence[Json]
) -> None:
    """Replace the rows `name` in a file of results, and write the table of its section again.

    The table has all rows of the file, because one row may be measured alone. The file is read
    again here, because another program may have measured other rows meanwhile.

    Args:
        file: the file of results.
        heading: the heading of the section of docs/benchmarks.md.
        order: the texts of the first column, in the order of the table.
        name: the text in the first column of these rows.
        rows: the rows that were just measured.
    """
    results = {**read_results(file), name: list(rows)}
    file.write_text(json.dumps(results, indent=2) + "\n")
    put_into_section(DOCUMENT, heading, table(results, order))


def publish(
    heading: str, name: str, rows: Sequence[Row], load_before: float, keep_others: bool = False
) -> None:
    """Write rows as the table of a section of docs/benchmarks.md.

    Args:
        heading: the heading of the section.
        name: the text in the first column of each row.
        rows: the rows that were just measured.
        load_before: os.getloadavg()[0] before the measurement.
        keep_others: whether the section's rows that were not measured now stay, after the new ones.
    """
    where = when_and_load(load_before)
    text = table({name: with_where(rows, where)}, [name])
    if keep_others:
        text = "\n".join([text, *other_rows(DOCUMENT, heading, name, {row.what for row in rows})])
    put_into_section(DOCUMENT, heading, text)


def other_rows(document: Path, heading: str, name: str, measured: Set[str]) -> list[str]:
    """The rows `name` in the table of a section whose second column is not in `measured`."""
    _, _, section = document.read_text().partition(f"{heading}\n")
    lines = section.partition(_END)[0].splitlines()
    found = [(line, line.split(" | ")) for line in lines if line.startswith(f"| {name} | ")]
    return [line for line, cells in found if cells[1] not in measured]


def put_into_section(document: Path, heading: str, text: str) -> None:
    """Replace the table in the section `heading`; a missing section or document is made."""
    content = document.read_text() if document.exists() else "# Benchmarks\n"
    if heading not in content.splitlines():
        content = f"{content.rstrip()}\n\n{heading}\n\n{_BEGIN}\n{_END}\n"
    before, _, section = content.partition(f"{heading}\n")
    head, _, rest = section.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    document.write_text(f"{before}{heading}\n{head}{_BEGIN}\n{text}\n{_END}{tail}")
