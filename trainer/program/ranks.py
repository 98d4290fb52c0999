"""Starts the processes of a user's own program on one node, and ends them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trainer.launch.local_ranks import LocalRanks, process_of
from trainer.launch.node_output import NodeOutput, Tap
from trainer.launch.status_files import StatusFiles
from trainer.launch.stop_request import StopRequest
from trainer.program.exits import is_failure
from trainer.program.leftovers import command_of, end_leftovers, orphans, reap, take_orphans

# When a rank has failed, the others get SIGTERM. They are killed after so many seconds.
GRACE_SECONDS = 10.0
REAP_SECONDS = 10.0
"""The time between two removals of orphans that have ended by themselves."""

SHOWN_COMMANDS = 3


class ProgramRanks(LocalRanks):
    """The processes of a user's own program on one node.

    SIGTERM goes only to the first process of each rank, as under torchrun. It would end the workers
    of a DataLoader, and then the program would fail in the middle of its save. A shell ends at once
    on SIGTERM and does not pass it on, so the processes that it leaves behind get SIGTERM too.
    """

    has_lifeline = False
    has_reports = False

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        status: StatusFiles,
        output: NodeOutput,
        folder: Path | None,
        tap: Tap,
        helpers: Callable[[], Collection[int]],
        stop: StopRequest,
    ):
        """Start the processes; see `LocalRanks`.

        Args:
            command: The program and its arguments.
            environments: All variables of each process.
            status: The status files of this node.
            output: Gets the lines that the processes print.
            folder: The folder in which the processes start; None for that of this process.
            tap: Also gets what the processes print.
            helpers: Returns the ids of the processes that this process has started beside the
                ranks.
            stop: The request to stop this node. Once a stop is requested, the pod's grace period
                is the only time limit.
        """
        self._helpers, self._stop = helpers, stop
        self._has_asked, self._ending_since_seconds = False, float("inf")
        self._were_running = [False] * len(environments)  # when they were asked to end
        self._asked_orphans, self._reaped_at = set[int](), time.monotonic()
        take_orphans()
        super().__init__(process_of(command, folder), environments, status, output, tap)

    def request_stop(self) -> None:
        """Ask each rank once to save and end. If asked twice, many programs end without saving."""
        if not self._has_asked:
            self._has_asked = True
            self._were_running = [code is None for code in self.exit_codes()]
            super().request_stop()

    def is_running(self) -> bool:
        """Whether any process runs, also a program whose shell SIGTERM has already ended."""
        if super().is_running():
            return True
        return self._has_asked and bool(self._orphans())

    def wait(self, seconds: float) -> None:
        """See `LocalRanks`; before that, ask programs whose shell has ended to end too."""
        if self._has_asked:
            self._ask_orphans()
        if time.monotonic() - self._reaped_at >= REAP_SECONDS:
            reap(self._own())
            self._reaped_at = time.monotonic()
        if super().is_running():
            super().wait(seconds)
        elif self._has_asked:
            time.sleep(seconds)

    def by_pid(self) -> dict[int, int | None]:
        """Return the rank of each first process by its id; None if it starts ranks itself."""
        return dict(zip(self.pids(), self._ranks, strict=True))

    @property
    def were_asked(self) -> list[bool]:
        """Whether each process was asked to end while it ran; see `report_of`."""
        return self._were_running

    def has_failed(self) -> bool:
        """Whether a rank has ended, but neither finished nor was stopped on request.

        The result is False once a stop of this node is requested.
        """
        if self._stop.requested:
            return False
        ends = zip(self.exit_codes(), self._were_running, strict=True)
        return any(is_failure(code, was_asked=was_asked) for code, was_asked in ends)

    def end_soon(self) -> None:
        """Ask all ranks to end, and kill them after `GRACE_SECONDS`. Call this until none runs.

        Once a stop of this node is requested, ranks are not killed.
        """
        self.request_stop()
        now = time.monotonic()
        self._ending_since_seconds = min(self._ending_since_seconds, now)
        if not self._stop.requested and now - self._ending_since_seconds > GRACE_SECONDS:
            for process, rank in zip(self._processes, self._ranks, strict=True):
                _signal_group(process.pid, signal.SIGKILL)
                if process.poll() is None:
                    self._killed.still_runs(process.pid, rank)

    def _ask_orphans(self) -> None:
        """Send SIGTERM once to each process that has become an orphan since the last call."""
        for pid in set(self._orphans()) - self._asked_orphans:
            self._asked_orphans.add(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _orphans(self) -> list[int]:
        """Return the orphans in the ranks' process groups, such as programs of an ended shell."""
        found, ranks = orphans(self._own()), self.pids()
        return [pid for pid, group in found.items() if group in ranks]

    def _own(self) -> list[int]:
        """Return the ids of the processes that this process has started itself."""
        return [*self.pids(), *self._helpers()]

    def close(self) -> None:
        """Kill all processes that the program has left behind, because they would hold the GPUs.

        Then close the output pipes; see `LocalRanks`.
        """
        if not self._has_asked and not any(self.exit_codes()):
            self._say_what_goes_on()
        if left := end_leftovers(self._helpers()):
            pids = ", ".join(map(str, left))
            self._say(f"warning: process(es) {pids} of the program cannot be ended")
        super().close()

    def _say_what_goes_on(self) -> None:
        """Name the processes that still run although the program has ended with exit code 0."""
        names = [command_of(pid) for pid in orphans(self._own())]
        if shown := ", ".join(filter(None, names[:SHOWN_COMMANDS])):
            self._say(
                "warning: the program has ended with exit code 0, and what it has left running is "
                f"ended now: {shown}. If the training is among it, start it in the foreground, "
                "without & or nohup"
            )


def _signal_group(group: int, number: int) -> None:
    """Send a signal to a process group, which may have ended by itself."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)
