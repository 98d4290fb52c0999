"""Prints from time to time how much of the run's time was productive (its goodput).

People read the line in the log, and `./disttrain status` reads it. A separate process with a low
priority makes the account: the event file of a long run takes seconds to read, and the entrypoint
has ranks to look after.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from trainer.launch.killing import kill
from trainer.launch.signed_lines import RUN_KEY_VARIABLE
from trainer.program.carry import own_command

LEAST_SECONDS = 300.0
LEAST_SHARE = 0.01
"""The least time between two lines, as a share of the run's time: a long file is slow to read."""
LAST_LINE_SECONDS = 20.0
_LOWEST_PRIORITY = 19


class GoodputLine:
    """Runs `python -m trainer goodput` again and again while the ranks of node 0 run."""

    def __init__(
        self,
        config_arguments: Sequence[str],
        node_rank: int,
        say: Callable[[str], None],
        least_seconds: float = LEAST_SECONDS,
    ) -> None:
        """`config_arguments` are passed to the process unchanged. Only node 0 prints the line."""
        self._command = own_command("goodput", "--json", *config_arguments)
        self._is_wanted, self._say, self._least_seconds = node_rank == 0, say, least_seconds
        self._due = time.monotonic() + least_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    def pids(self) -> list[int]:
        """Return a list with the id of the process, or an empty list if none runs."""
        return [self._process.pid] if self._process is not None else []

    def poll(self) -> None:
        """Start the process if it is due, or print what it has found. This never waits."""
        if self._process is not None and self._process.poll() is not None:
            found = self._take()
            wall_seconds = found.get("wall_seconds", 0.0)
            self._due = time.monotonic() + max(self._least_seconds, LEAST_SHARE * wall_seconds)
        elif self._process is None and self._is_wanted and time.monotonic() >= self._due:
            self._start()
            if self._process is None:
                self._due = time.monotonic() + self._least_seconds

    def say_last(self) -> None:
        """Print the line once more at the end of the run.

        This waits for the process, for at most `LAST_LINE_SECONDS`.
        """
        if not self._is_wanted:
            return
        self.close()
        self._start()
        if self._process is None:
            return
        try:
            self._process.wait(LAST_LINE_SECONDS)
        except subprocess.TimeoutExpired:
            self.close()
        else:
            self._take()

    def close(self) -> None:
        """End the process, if one runs."""
        if self._process is not None:
            kill(self._process)
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None

    def _start(self) -> None:
        """Start the process; if it cannot be started, the ranks go on without it."""
        environment = {**os.environ}
        environment.pop(RUN_KEY_VARIABLE, None)
        try:
            # A file and not a pipe, which would be full before it is read. `close` closes it.
            self._output = tempfile.TemporaryFile()  # noqa: SIM115
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.DEVNULL,  # if it fails, there is no line
                env=environment,
                start_new_session=True,
            )
        except OSError:
            self.close()
            return
        os.setpriority(os.PRIO_PROCESS, self._process.pid, _LOWEST_PRIORITY)

    def _take(self) -> Mapping[str, Any]:
        """Print and return the account of the process that has ended; empty if it made none."""
        assert self._process is not None
        assert self._output is not None
        self._output.seek(0)
        text = self._output.read() if self._process.returncode == 0 else b"{}"
        found: dict[str, Any] = json.loads(text)
        self.close()
        if found.get("wall_seconds"):
            self._say(goodput_line(found))
        return found


def goodput_line(account: Mapping[str, Any]) -> str:
    """Return `goodput 92.3% of 3.1 h: 2 restarts, 14 steps made again; 9.320 rank-hours`.

    Args:
        account: What `python -m trainer goodput --json` prints.
    """
    seconds = account["wall_seconds"]
    length = f"{seconds / 3600:.1f} h" if seconds >= 2 * 3600 else f"{seconds / 60:.1f} min"
    restarts, lost = account["restarts"], account["lost_steps"]
    return (
        f"goodput {account['goodput']:.1%} of {length}: "
        f"{restarts} restart{'' if restarts == 1 else 's'}, "
        f"{lost} step{'' if lost == 1 else 's'} made again; {account['gpu_hours']:.3f} rank-hours"
    )
