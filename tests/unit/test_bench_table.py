"""The benchmark's table keeps what others wrote around it."""

from pathlib import Path

from bench.table import put_into_section, table

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
