"""The processes of a user's own program on one node: how they are asked to end, and ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trainer.launch.exit_codes import ExitCode
from trainer.launch.local_ranks import LocalRanks, process_of
from trainer.launch.node_output import NodeOutput, Tap
from trainer.launch.status_files import StatusFiles
from trainer.launch.stop_request import StopRequest
from trainer.program.leftovers import end_leftovers, orphans, reap, take_orphans

# When a rank has failed, the others get SIGTERM, and so long to end before they are killed.
GRACE_SECONDS = 10.0
REAP_SECONDS = 10.0
"""Between two looks for orphans that have ended by themselves."""


class ProgramRanks(LocalRanks):
    """SIGTERM goes to the first process of each rank alone, as under torchrun.

    The workers of a DataLoader would die of it, and their program with an error in the middle of
    its save. What a shell leaves behind, which ends at once and hands nothing on, gets it too.
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
        """See `LocalRanks`, and beside:

        Args:
            helpers: says which processes this one has started beside the ranks.
            stop: of this node. Once it is requested, the pod's grace is the only limit of time.
        """
        self._helpers, self._stop = helpers, stop
        self._has_asked, self._ending_since_seconds = False, float("inf")
        self._asked_orphans, self._reaped_at = set[int](), time.monotonic()
        take_orphans()
        super().__init__(process_of(command, folder), environments, status, output, tap)

    def request_stop(self) -> None:
        """Ask each rank to save and end. Asked twice, many programs end without saving."""
        if not self._has_asked:
            self._has_asked = True
            super().request_stop()

    def is_running(self) -> bool:
        """Whether any of them runs, or a program below a shell that SIGTERM has ended at once."""
        if super().is_running():
            return True
        return self._has_asked and bool(self._orphans())

    def wait(self, seconds: float) -> None:
        """See `LocalRanks`; before it, programs whose shell has ended are asked to end, too."""
        if self._has_asked:
            self._ask_orphans()
        if time.monotonic() - self._reaped_at >= REAP_SECONDS:
            reap(self._own())
            self._reaped_at = time.monotonic()
        if super().is_running():
            super().wait(seconds)
        elif self._has_asked:
            time.sleep(seconds)

    @property
    def was_asked(self) -> bool:
        """Whether the processes were asked to end, so that exit code 0 does not mean: finished."""
        return self._has_asked

    def has_failed(self) -> bool:
        """Whether a rank has ended otherwise than by finishing or by a request to stop."""
        if self._stop.requested:
            return False
        expected = [None, ExitCode.DONE, ExitCode.PREEMPTED]
        expected += [-signal.SIGTERM] if self._has_asked else []
        return any(code not in expected for code in self.exit_codes())

    def end_soon(self) -> None:
        """End all ranks; call it repeatedly until none runs."""
        self.request_stop()
        now = time.monotonic()
        self._ending_since_seconds = min(self._ending_since_seconds, now)
        if not self._stop.requested and now - self._ending_since_seconds > GRACE_SECONDS:
            for process in self._processes:
                _signal_group(process.pid, signal.SIGKILL)

    def _ask_orphans(self) -> None:
        """Send SIGTERM once to each process that has become an orphan since the last call."""
        for pid in set(self._orphans()) - self._asked_orphans:
            self._asked_orphans.add(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _orphans(self) -> list[int]:
        """Those in the process groups of the ranks, such as a program whose shell has ended."""
        found, ranks = orphans(self._own()), self.pids()
        return [pid for pid, group in found.items() if group in ranks]

    def _own(self) -> list[int]:
        """The processes that this one has started itself."""
        return [*self.pids(), *self._helpers()]

    def close(self) -> None:
        """Nothing that the program has started may live on: it would hold the GPUs."""
        if left := end_leftovers(self._helpers()):
            pids = ", ".join(map(str, left))
            self._say(f"warning: process(es) {pids} of the program cannot be ended")
        super().close()


def _signal_group(group: int, number: int) -> None:
    """The group may have ended by itself."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)
