"""Writes the log lines of a node to `<run_dir>/logs/node-00000.log` on the volume.

There the lines outlive the pod and its machine. Each line of the file is `<time> <node> <rank>
<text>`: the time in UTC with microseconds, the rank of the node, and the global rank of the process
that wrote the line. The lines of the entrypoint and of the mirror have `-` instead of a rank.
`./disttrain logs` reads the files (cli/logs/).

A volume that is full, or does not answer, must never hold up the training. So a separate thread
writes the lines from a queue of limited size. When the queue is full, lines are left out of the
file, and a later line in the file says how many.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from trainer.launch.rotating_file import RotatingFile

LOGS_DIR = "logs"
NO_RANK = "-"
QUEUE_BYTES = 8 << 20
WRITE_BYTES = 256 << 10  # of one write, roughly
RETRY_SECONDS = 2.0
STUCK_SECONDS = 60.0  # if nothing can be written for longer, a warning is printed
SYNC_SECONDS = 2.0  # a machine that loses power loses lines of about this time


def log_path(run_dir: Path, node_rank: int) -> Path:
    """Return the path of the file with the lines of a node."""
    return run_dir / LOGS_DIR / f"node-{node_rank:05d}.log"


def record_of(at: datetime, node_rank: int, rank: int | None, line: bytes) -> bytes:
    """Return a line of the file; `line` has no newline, and need not be valid UTF-8."""
    written_rank = NO_RANK if rank is None else rank
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}Z {node_rank} {written_rank} ".encode() + line + b"\n"


class RunLog:
    """Writes lines to a file in a separate thread, so that `put` never waits for the file.

    Args:
        file: The file to which the lines are written.
        node_rank: The rank of the node that writes.
        queue_bytes: How many bytes may wait to be written.
    """

    def __init__(self, file: RotatingFile, node_rank: int, queue_bytes: int = QUEUE_BYTES) -> None:
        self._file, self._node_rank, self._queue_bytes = file, node_rank, queue_bytes
        self._changed = threading.Condition()  # never held while the file is written
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0  # includes the batch that is being written
        self._lost = 0  # lines left out since the last line in the queue
        self._lost_because = ""
        self._problem = ""  # why the last write failed; empty: it did not
        self._stuck_since: float | None = None  # since when a batch could not be written
        self._has_told = False
        self._closing = False
        self._thread = threading.Thread(target=self._write_all, daemon=True, name="run-log")
        self._thread.start()

    def put(self, at: datetime, rank: int | None, line: bytes) -> str:
        """Put one line into the queue.

        Returns a warning to print if lines are or may be left out, and else an empty text. The
        warning is returned again only after a write has succeeded.
        """
        record = record_of(at, self._node_rank, rank, line)
        with self._changed:
            # Once lines are left out, half of the queue has to be free before it takes lines again.
            room = self._queue_bytes // 2 if self._lost else self._queue_bytes
            if self._waiting_bytes + len(record) > room:
                self._lost_because = self._lost_because or self._problem or "it does not answer"
                self._lost += 1
                return self._tell_once()
            self._note_lost(at)
            self._add(record)
            self._changed.notify_all()
            stuck = self._stuck_since
            is_stuck = stuck is not None and time.monotonic() - stuck > STUCK_SECONDS
            return self._tell_once() if is_stuck else ""

    def settle(self, seconds: float) -> str:
        """Wait at most `seconds` until all lines are written.

        Returns a warning if they are not written by then, or an empty text.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting_bytes, seconds)
            return self._notice() if self._waiting_bytes else ""

    def close(self, seconds: float) -> None:
        """Write what is left, for at most `seconds`; if the volume hangs, the rest is lost."""
        with self._changed:
            self._note_lost(datetime.now(UTC))
            self._closing = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def _tell_once(self) -> str:
        """Return the warning, unless it was returned before and no write has succeeded since."""
        if self._has_told:
            return ""
        self._has_told = True
        return self._notice()

    def _notice(self) -> str:
        return (
            f"warning: the run's logs on the volume cannot be written "
            f"({self._problem or 'it does not answer'}): some lines will be missing there if this "
            "lasts; training is not held up"
        )

    def _note_lost(self, at: datetime) -> None:
        if self._lost:
            text = (
                f"[node {self._node_rank}] warning: {self._lost} line(s) are missing here, because "
                f"the volume could not be written ({self._lost_because})"
            )
            self._add(record_of(at, self._node_rank, None, text.encode()))
            self._lost, self._lost_because = 0, ""

    def _add(self, record: bytes) -> None:
        self._waiting.append(record)
        self._waiting_bytes += len(record)

    def _write_all(self) -> None:
        """Write batches of lines (the thread).

        A batch that cannot be written is tried again, so that a short failure loses no line.
        """
        batch, unsynced_since = b"", None
        while True:
            with self._changed:
                if not batch:
                    pause = SYNC_SECONDS if unsynced_since is not None else None
                    self._changed.wait_for(lambda: self._waiting or self._closing, pause)
                    batch = self._take()
                if batch and self._stuck_since is None:
                    self._stuck_since = time.monotonic()
                if not batch and self._closing and unsynced_since is None:
                    return
            problem, written = "", 0
            try:
                written = self._file.append(batch) if batch else 0
                if written and unsynced_since is None:
                    unsynced_since = time.monotonic()
                if unsynced_since is not None and self._must_sync(unsynced_since, batch):
                    unsynced_since = None
                    self._file.sync()
            except OSError as error:
                problem = error.strerror or str(error)
            whole = batch.rfind(b"\n", 0, written) + 1  # a line that was cut off is written again
            if batch and not problem and whole < len(batch):
                problem = "no room for a whole line"
            batch = batch[whole:]
            with self._changed:
                self._waiting_bytes -= whole
                self._problem = problem
                if not problem:
                    self._stuck_since, self._has_told = None, False
                self._changed.notify_all()
                if problem and self._closing:
                    return  # there is no time to try again
                if problem:
                    self._changed.wait_for(lambda: self._closing, RETRY_SECONDS)

    def _must_sync(self, since: float, batch: bytes) -> bool:
        return self._closing or not batch or time.monotonic() - since >= SYNC_SECONDS

    def _take(self) -> bytes:
        taken: list[bytes] = []
        size = 0
        while self._waiting and size < WRITE_BYTES:
            taken.append(self._waiting.popleft())
            size += len(taken[-1])
        return b"".join(taken)
