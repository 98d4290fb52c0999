"""What a node prints: its own lines and those of its processes, on standard output and in a file.

The container's log gets each line as the process wrote it. The run's log on the volume
(trainer/launch/run_log.py) gets the same lines in the same order, with their time and rank.
On a terminal the processes print for themselves, and no file is written.
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
"""Is given what a process prints as it comes, and its rank, in a thread; must not raise."""
_STDOUT = 1


class NodeOutput:
    """The output of one node.

    Args:
        node_rank: of the node.
        run_dir: the run's directory on the volume; None keeps no file.
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
        """The output of this process: without a file where somebody sits at a terminal."""
        return NodeOutput(node_rank, None if sys.stdout.isatty() else run_dir)

    def say(self, text: str) -> None:
        """Print a line of the node's own."""
        self._print(
            None, [line.encode() for line in f"[node {self._node_rank}] {text}".split("\n")]
        )

    def pipe(self, rank: int | None, tap: Tap | None = None) -> LinePipe | None:
        """A pipe for the output of a process, by its global rank; None: let it inherit ours."""
        if tap is not None:
            return LinePipe(lambda lines: self._print(rank, lines), lambda block: tap(rank, block))
        if self._log is None:
            return None
        return LinePipe(lambda lines: self._print(rank, lines))

    def note(self, text: str) -> None:
        """Lines for the file alone."""
        if self._log is not None:
            for line in text.splitlines():
                self._log.put(datetime.now(UTC), None, line.encode(errors="backslashreplace"))

    def settle(self) -> None:
        """Wait a moment until the file has all lines, and say it where it has not.

        For the time before a line that has to be the last one.
        """
        if self._log is not None and (problem := self._log.settle(SETTLE_SECONDS)):
            self.say(problem)

    def close(self) -> None:
        """Write what is left; the node says nothing more."""
        if self._log is not None:
            self._log.close(SETTLE_SECONDS)

    def _print(self, rank: int | None, lines: Sequence[bytes]) -> None:
        at, shown = datetime.now(UTC), list[bytes]()
        with self._lock:  # so that both have the same order, which `./disttrain logs` uses
            for line in lines:
                for text in self._said_again.before(at, line):
                    again = f"[node {self._node_rank}] {text}".encode()
                    if self._log is not None:
                        self._log.put(at, None, again)
                    shown.append(again)
                notice = self._log.put(at, rank, line) if self._log is not None else ""
                if notice:  # before the line, as that may have to be the last one
                    shown.append(f"[node {self._node_rank}] {notice}".encode())
                shown.append(line)
            self._write(b"".join(line + b"\n" for line in shown))

    def _write(self, data: bytes) -> None:
        """Write past `sys.stdout`: a thread of ours that holds its lock could break the exit."""
        while data and self._can_print:
            try:
                data = data[os.write(_STDOUT, data) :]
            except OSError as error:  # nobody reads it any more; the ranks must not notice
                self._can_print = False
                self.note(f"[node {self._node_rank}] standard output is gone: {error}")
