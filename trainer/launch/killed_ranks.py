"""Says which rank has not ended although it was killed.

The kernel ends a killed process only when the process is not inside a system call that cannot be
interrupted. One that waits for a volume or a GPU that does not answer may stay for ever. Its node
waits for it, because its GPU is not free, and without a line nobody would know why.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SAY_AFTER_SECONDS = 30.0  # the kernel usually needs milliseconds, and some seconds with much memory


class KilledRanks:
    """Watches the processes that were killed. `say` prints a line of the node."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._since = dict[int, float]()
        self._said = set[int]()

    def still_runs(self, pid: int, rank: int | None) -> None:
        """Note that a process runs which is killed now, or was killed before.

        A line names it once, `SAY_AFTER_SECONDS` after the first call for this process.

        Args:
            pid: The id of the process.
            rank: Its global rank; None for a program that starts several ranks itself.
        """
        now = time.monotonic()
        since = self._since.setdefault(pid, now)
        if pid in self._said or now - since < SAY_AFTER_SECONDS:
            return
        self._said.add(pid)
        who = "the program" if rank is None else f"rank {rank}"
        self._say(
            f"{who} (process {pid}) has not ended {now - since:.0f} s after it was killed; its "
            f"state is {_state_of(pid)}. It waits inside the kernel, mostly for a volume or a GPU "
            "that does not answer, and this node waits for its end. `dmesg` on the machine says "
            "more; the machine may have to be started anew"
        )


def _state_of(pid: int) -> str:
    """Return the kernel's word for the state of a process, such as `D (disk sleep)`."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("State:"):
                return line.partition(":")[2].strip()
    return "unknown"
