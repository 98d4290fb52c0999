"""Formats rows of words as lines of text with aligned columns. This module is pure."""

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row. Each column is as wide as its longest cell.

    Raises ValueError if the rows do not all have the same number of cells.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
