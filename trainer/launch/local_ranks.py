"""Starts the training processes of one node together, and ends them together."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trainer.launch.exit_codes import ExitCode
from trainer.launch.killed_ranks import KilledRanks
from trainer.launch.node_output import NodeOutput, Tap
from trainer.launch.status_files import StatusFiles

# Seconds in which the other ranks may notice by themselves that one has failed, and report it.
GRACE_SECONDS = 2.0
# After them the ranks are killed. A rank that is writing a checkpoint gets so many seconds for it.
LONGEST_WRITE_SECONDS = 900.0
# Seconds for which a process that a rank has left behind may keep the rank's output pipe open.
LEFT_BEHIND_SECONDS = 1.0
# Seconds to pass on what is left in a pipe if standard output is slow.
LAST_LINES_SECONDS = 10.0

Start = Callable[[Mapping[str, str], int, int | None], subprocess.Popen[bytes]]
"""Starts a process; its arguments are the environment, standard input and standard output.

`process_of` makes such a function."""


def process_of(command: Sequence[str], folder: Path | None = None) -> Start:
    """Return a function that starts `command` in `folder`, or in the folder of this process.

    The function's third argument is an open file for all that the process prints; with None, it
    prints where this process prints. The function raises OSError if the program cannot be started.
    """

    def start(
        environment: Mapping[str, str], stdin: int, output: int | None
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            env=environment,
            cwd=folder,
            start_new_session=True,  # Ctrl-C reaches the entrypoint, which forwards it
        )

    return start


class LocalRanks:
    """The process of each local rank, and the pipe that ends them when this process ends."""

    has_lifeline = True
    """Whether the processes read the pipe that ends them; if not, their standard input is empty."""
    has_reports = True
    """Whether each process reports its end (status_files.py) and ends with an `ExitCode`."""

    def __init__(
        self,
        start: Start,
        environments: Sequence[Mapping[str, str]],
        status: StatusFiles,
        output: NodeOutput,
        tap: Tap | None = None,
    ):
        """Start a process with each of `environments`.

        Args:
            start: Starts one process.
            environments: All variables of each process, by local rank. RANK is the process's global
                rank; a process without RANK starts several ranks itself.
            status: The status files of this node.
            output: Gets the lines that the processes print.
            tap: Also gets what the processes print.

        Raises:
            OSError: the program cannot be started.
        """
        self._status, self._say = status, output.say
        ranks = [environment.get("RANK") for environment in environments]
        self._ranks = [int(rank) if rank is not None else None for rank in ranks]
        self._pipes = [output.pipe(rank, tap) for rank in self._ranks]
        self._ending_since: float | None = None
        self._is_waiting_for_write = False
        self._killed = KilledRanks(output.say)
        self.gone: list[int] = []
        """The local ranks that ended first and gave no reason; see `say_who_was_killed`."""
        self._processes = list[subprocess.Popen[bytes]]()
        read_end, self._lifeline = os.pipe()  # never written to: see trainer/launch/lifeline.py
        try:
            for environment, pipe in zip(environments, self._pipes, strict=True):
                stdin = read_end if self.has_lifeline else subprocess.DEVNULL
                stdout = pipe.write_end if pipe is not None else None
                self._processes.append(start(environment, stdin, stdout))
        finally:
            os.close(read_end)
            for pipe in self._pipes:
                if pipe is not None:
                    pipe.start()

    def pids(self) -> list[int]:
        """Return the process ids, by local rank."""
        return [process.pid for process in self._processes]

    def exit_codes(self) -> list[int | None]:
        """Return the exit codes, by local rank.

        The code is None if the process runs, and negative if a signal has ended it.
        """
        return [process.poll() for process in self._processes]

    def is_running(self) -> bool:
        """Whether any of the processes runs."""
        return None in self.exit_codes()

    def has_failed(self) -> bool:
        """Whether any process has ended, but neither finished nor was stopped on request."""
        expected = (None, ExitCode.DONE, ExitCode.PREEMPTED)
        return any(code not in expected for code in self.exit_codes())

    def say_who_was_killed(self) -> None:
        """Name the ranks that a signal has ended, and those that ended without giving a reason.

        Call this when the first rank has failed. Later, this process kills the other ranks too.
        """
        for local_rank, (rank, code) in enumerate(zip(self._ranks, self.exit_codes(), strict=True)):
            if code is not None and code < 0:
                self.gone.append(local_rank)
                who = "the program" if rank is None else f"rank {rank}"
                self._say(f"{who} {killed_by(-code)}")
            elif self.has_reports and code is not None and code not in [*ExitCode]:
                self.gone.append(local_rank)
                self._say(f"rank {rank} ended by itself with exit status {code} and gave no reason")

    def request_stop(self) -> None:
        """Ask all ranks to save and end, without a time limit."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)

    def end_soon(self) -> None:
        """Kill all ranks that still run after `GRACE_SECONDS`. Call this until none runs.

        A rank that is writing a checkpoint gets more time to finish it.
        """
        now = time.monotonic()
        if self._ending_since is None:
            self._ending_since = now
        elapsed = now - self._ending_since
        if elapsed < GRACE_SECONDS:
            return
        for local_rank, process in enumerate(self._processes):
            is_saving = self._status.is_saving(local_rank)
            if process.poll() is None and (not is_saving or elapsed > LONGEST_WRITE_SECONDS):
                process.kill()
                self._killed.still_runs(process.pid, self._ranks[local_rank])
            elif process.poll() is None and not self._is_waiting_for_write:
                self._is_waiting_for_write = True
                self._say("a checkpoint is being written: waiting for its end")

    def wait(self, seconds: float) -> None:
        """Wait at most `seconds` for the end of a process that still runs."""
        running = [process for process in self._processes if process.poll() is None]
        if running:
            with suppress(subprocess.TimeoutExpired):
                running[0].wait(seconds)

    def close(self) -> None:
        """Close the lifeline, at which any rank that still runs ends itself, and the output pipes.

        Before this returns, all that the ranks have printed is passed on. A process that a rank has
        left behind may still have the rank's output pipe open; its end is awaited only briefly.
        """
        os.close(self._lifeline)
        end = time.monotonic() + LEFT_BEHIND_SECONDS
        for pipe in self._pipes:
            if pipe is not None:
                pipe.wait_for_end(max(0.0, end - time.monotonic()))
        for pipe in self._pipes:
            if pipe is not None:
                pipe.close(LAST_LINES_SECONDS)


def killed_by(number: int) -> str:
    """Return words for a process that the signal `number` has ended, as in `was killed by ...`."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL:
        return f"was killed by {name}: by the kernel for lack of memory, or by somebody"
    if number == signal.SIGBUS:
        return (
            f"was ended by {name}: a file that it had mapped into memory, such as the data set, "
            "could not be read or became shorter, or /dev/shm is full"
        )
    return f"was ended by {name}"
