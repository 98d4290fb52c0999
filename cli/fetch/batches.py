"""What one call brings: ranges of files, up to a number of bytes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

BATCH_BYTES = 64 << 20
BATCH_PIECES = 64  # their names travel in the address of the call


@dataclass(frozen=True)
class Piece:
    """The rest of one range: of the file with this index, `count` bytes from `offset` on."""

    file: int
    number: int
    offset: int
    count: int


def batches(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Put neighbours together while they are small; every call costs the start of a program."""
    found: list[list[Piece]] = []
    size = 0
    for piece in pieces:
        if not found or size + piece.count > BATCH_BYTES or len(found[-1]) == BATCH_PIECES:
            found.append([])
            size = 0
        found[-1].append(piece)
        size += piece.count
    return found
