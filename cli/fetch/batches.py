"""Divides the missing parts of files into batches, each of which one call brings.

This module is pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

BATCH_BYTES = 64 << 20
BATCH_PIECES = 64  # the names of the files are in the address of the call, which must stay short


@dataclass(frozen=True)
class Piece:
    """The missing rest of one range of a file: `count` bytes from `offset` on.

    `file` is the index of the file, and `number` is the number of the range in the file.
    """

    file: int
    number: int
    offset: int
    count: int


def batches(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Put pieces that follow each other into one batch while the batch is small.

    Few batches are wanted, because every call starts a program in the pod.
    """
    found: list[list[Piece]] = []
    size = 0
    for piece in pieces:
        if not found or size + piece.count > BATCH_BYTES or len(found[-1]) == BATCH_PIECES:
            found.append([])
            size = 0
        found[-1].append(piece)
        size += piece.count
    return found
