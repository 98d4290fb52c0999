"""Gives a blob as a stream that reports how much of it has been read."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from infra.command_line import Say
from infra.image.oci import Blob

STEP_BYTES = 512 << 20


@contextmanager
def sending(part: Blob, start: int, say: Say) -> Iterator[IO[bytes]]:
    """Give the content from byte `start` on, and report the progress every STEP_BYTES.

    The progress of content in memory is not reported.
    """
    if not isinstance(part.content, Path):
        yield io.BytesIO(part.read()[start:])
        return
    with _Counted(part.content, part.size_bytes, say) as stream:
        stream.seek(start)
        yield stream


class _Counted(io.FileIO):
    def __init__(self, file: Path, size_bytes: int, say: Say) -> None:
        super().__init__(file)
        self._size_bytes, self._say, self._said = size_bytes, say, 0

    def read(self, size: int | None = -1, /) -> bytes:
        content = super().read(-1 if size is None else size) or b""
        position = self.tell()
        if position // STEP_BYTES > self._said:
            self._said = position // STEP_BYTES
            self._say(f"image: {position / 1e6:,.0f} of {self._size_bytes / 1e6:,.0f} MB sent")
        return content
