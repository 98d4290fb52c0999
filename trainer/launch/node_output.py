"""Prints what a node and its processes write, to standard output and to a file on the volume.

The container's log gets each line as the process wrote it. The run's log on the volume
(trainer/launch/run_log.py) gets the same lines in the same order, with their time and rank. On a
terminal the processes print directly, and no file is written.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from trainer.launch.line_pipe import LinePipe
from trainer.launch.rotating_file import RotatingFile
from trainer.launch.run_log import RunLog, log_path
from trainer.launch.said_again import SaidAgain

SETTLE_SECONDS = 3.0
Tap = Callable[[int | None, bytes], None]
"""Called in a thread with a rank and a block of what its process prints; must not raise."""
_STDOUT = 1


class NodeOutput:
    """The output of one node.

    Args:
        node_rank: The rank of the node.
        run_dir: The run's directory on the volume; with None, no file is written.
    """

    def __init__(self, node_rank: int, run_dir: Path | None) -> None:
        self._node_rank = node_rank
        self._lock = threading.Lock()
        self._said_again = SaidAgain()
        self._can_print = True
        self._log = None
        if run_dir is not None:
            self._log = RunLog(RotatingFile(log_path(run_dir, node_rank)), node_rank)

    @staticmethod
    def of(node_rank: int, run_dir: Path) -> NodeOutput:
        """Return the output for this process; it writes no file if it prints to a terminal."""
        return NodeOutput(node_rank, None if sys.stdout.isatty() else run_dir)

    def say(self, text: str) -> None:
        """Print a line of the node itself."""
        self._print(
            None, [line.encode() for line in f"[node {self._node_rank}] {text}".split("\n")]
        )

    def pipe(self, rank: int | None, tap: Tap | None = None) -> LinePipe | None:
        """Return a pipe for the output of a process.

        None means that the process has to inherit the standard output of this process.

        Args:
            rank: The global rank of the process; None if it is no single rank.
            tap: Called with what the process prints, as blocks of bytes.
        """
        if tap is not None:
            return LinePipe(lambda lines: self._print(rank, lines), lambda block: tap(rank, block))
        if self._log is None:
            return None
        return LinePipe(lambda lines: self._print(rank, lines))

    def note(self, text: str) -> None:
        """Write lines to the file only."""
        if self._log is not None:
            for line in text.splitlines():
                self._log.put(datetime.now(UTC), None, line.encode(errors="backslashreplace"))

    def settle(self) -> None:
        """Wait a moment until the file has all lines, and print a warning if it has not.

        Call this before a line that has to be the last one.
        """
        if self._log is not None and (problem := self._log.settle(SETTLE_SECONDS)):
            self.say(problem)

    def close(self) -> None:
        """Write what is left to the file. The node prints nothing after this."""
        if self._log is not None:
            self._log.close(SETTLE_SECONDS)

    def _print(self, rank: int | None, lines: Sequence[bytes]) -> None:
        at, shown = datetime.now(UTC), list[bytes]()
        with self._lock:  # both outputs get the same order, on which `./disttrain logs` relies
            for line in lines:
                for text in self._said_again.before(at, line):
                    again = f"[node {self._node_rank}] {text}".encode()
                    if self._log is not None:
                        self._log.put(at, None, again)
                    shown.append(again)
                notice = self._log.put(at, rank, line) if self._log is not None else ""
                if notice:  # before the line, which may have to stay the last one
                    shown.append(f"[node {self._node_rank}] {notice}".encode())
                shown.append(line)
            self._write(b"".join(line + b"\n" for line in shown))

    def _write(self, data: bytes) -> None:
        """Write without `sys.stdout`: a thread that holds its lock could break the exit."""
        while data and self._can_print:
            try:
                data = data[os.write(_STDOUT, data) :]
            except OSError as error:  # the reader is gone; the ranks must not notice
                self._can_print = False
                self.note(f"[node {self._node_rank}] standard output is gone: {error}")
