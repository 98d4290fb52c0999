"""The benchmark's table in the documentation keeps what others wrote around it."""

from pathlib import Path

import pytest

from bench.row import Row
from bench.table import (
    keep_results,
    publish,
    put_into_section,
    read_results,
    table,
    with_where,
)

ROW = {"what": "speed", "bar": ">= 1.10x", "measured": "1.50x", "met": True, "where": "here"}


def test_rows_stand_in_the_given_order_and_only_if_measured() -> None:
    lines = table({"b": [{**ROW, "met": False}], "a": [ROW]}, ["a", "b", "c"]).splitlines()
    assert lines[2] == "| a | speed | >= 1.10x | 1.50x | yes | here |"
    assert lines[3] == "| b | speed | >= 1.10x | 1.50x | **no** | here |"
    assert len(lines) == 4


def test_a_section_is_made_once_and_then_only_its_table_changes(tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    put_into_section(document, "## Trainer", "| first |")
    text = document.read_text()
    assert text.startswith("# Benchmarks\n")
    around = text.replace("## Trainer\n", "## Trainer\n\nWhat the rows mean.\n")
    document.write_text(f"{around}\nAfter.\n\n## Image\n\n| other |\n")
    put_into_section(document, "## Trainer", "| second |")
    assert document.read_text() == (
        f"{around}\nAfter.\n\n## Image\n\n| other |\n".replace("| first |", "| second |")
    )
    put_into_section(document, "## Trainer", "| second |")
    assert document.read_text().count("| second |") == 1


def test_rows_not_measured_now_can_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `keep_others`, the rows of a section that were not measured now stay as they were.
    Without it they are removed.
    """
    document = tmp_path / "benchmarks.md"
    document.write_text("# Benchmarks\n\n## Size\n\n<!-- table: begin -->\n<!-- table: end -->\n")
    monkeypatch.setattr("bench.table.DOCUMENT", document)
    publish(
        "## Size", "size", [Row("small", "-", "1 s", None), Row("large", "-", "9 s", None)], 0.0
    )
    publish("## Size", "size", [Row("small", "-", "2 s", None)], 0.0, keep_others=True)
    text = document.read_text()
    assert "| small | - | 2 s |" in text
    assert "| large | - | 9 s |" in text
    assert "1 s" not in text
    publish("## Size", "size", [Row("small", "-", "3 s", None)], 0.0)
    assert "large" not in document.read_text()


def test_the_file_of_results_keeps_the_rows_that_were_not_measured_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, document = tmp_path / "results.json", tmp_path / "benchmarks.md"
    monkeypatch.setattr("bench.table.DOCUMENT", document)
    assert read_results(file) == {}
    for name, seconds in (("b", 1), ("a", 2), ("b", 3)):
        rows = with_where([Row("speed", "-", f"{seconds} s", None)], "here")
        keep_results(file, "## Trainer", ["a", "b"], name, rows)
    found = {name: rows[0]["measured"] for name, rows in read_results(file).items()}
    assert found == {"b": "3 s", "a": "2 s"}
    lines = [line for line in document.read_text().splitlines() if "speed" in line]
    assert lines == ["| a | speed | - | 2 s | - | here |", "| b | speed | - | 3 s | - | here |"]
