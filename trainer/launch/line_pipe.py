"""A pipe for the output of a process; a thread passes its lines on while the process runs."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

LONGEST_LINE_BYTES = 1 << 20  # a longer one is cut into several
_BLOCK_BYTES = 64 << 10
_LEFT_OVER_BYTES = 128 << 10  # more than a pipe holds; if more comes, a process still writes


class LinePipe:
    """The pipe and its thread.

    Args:
        take: Called in the thread with whole lines, without their newlines; must not raise.
        tap: Called in the thread with each block of bytes as it was read, after `take` has got the
            whole lines of the block; must not raise. If the last line has no newline, one is added.
    """

    def __init__(
        self, take: Callable[[list[bytes]], None], tap: Callable[[bytes], None] | None = None
    ) -> None:
        self._take, self._tap = take, tap
        self._rest: list[bytes] = []  # the begin of a line whose end has not come yet
        self._rest_bytes = 0
        self._read_end, self.write_end = os.pipe()
        self._stop_read, self._stop_write = os.pipe()  # closed to end the thread
        self._handing_on = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._read, daemon=True, name="line-pipe")

    def start(self) -> None:
        """Start the thread. Call this once the process has the pipe.

        This process closes its own copy of the write end.
        """
        os.close(self.write_end)
        self._thread.start()

    def wait_for_end(self, seconds: float) -> None:
        """Wait at most `seconds` until no process has the write end open any more."""
        self._thread.join(seconds)

    def close(self, seconds: float) -> None:
        """Pass on what is in the pipe, and nothing after that.

        A process that still has the pipe cannot write to it any more. The thread's end is awaited
        for `seconds`, and then its lock; that takes long only if `take` waits for something.
        """
        os.close(self._stop_write)
        self._thread.join(seconds)
        has_lock = self._handing_on.acquire(timeout=seconds)
        self._is_closed = True
        if has_lock:
            self._handing_on.release()

    def _read(self) -> None:
        waits = select.poll()
        waits.register(self._read_end, select.POLLIN)
        waits.register(self._stop_read, select.POLLIN)
        left = _LEFT_OVER_BYTES
        while left > 0:
            if any(number == self._stop_read for number, _ in waits.poll()):
                os.set_blocking(self._read_end, False)
            try:
                block = os.read(self._read_end, _BLOCK_BYTES)
            except BlockingIOError:  # `close` was called, and the pipe is empty
                break
            if not block:
                break
            if not os.get_blocking(self._read_end):
                left -= len(block)
            self._split(block)
            self._hand_on([], block)
        if self._rest:
            self._hand_on([b"".join(self._rest)], b"\n")
        os.close(self._read_end)
        os.close(self._stop_read)

    def _split(self, block: bytes) -> None:
        *whole, rest = block.split(b"\n")
        if whole:
            whole[0] = b"".join([*self._rest, whole[0]])
            self._rest, self._rest_bytes = [], 0
            self._hand_on(whole)
        if rest:
            self._rest.append(rest)
            self._rest_bytes += len(rest)
        if self._rest_bytes >= LONGEST_LINE_BYTES:
            self._hand_on([b"".join(self._rest)])
            self._rest, self._rest_bytes = [], 0

    def _hand_on(self, lines: list[bytes], block: bytes = b"") -> None:
        with self._handing_on:
            if lines and not self._is_closed:
                self._take(lines)
            if block and self._tap is not None and not self._is_closed:
                self._tap(block)
