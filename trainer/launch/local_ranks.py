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
from trainer.launch.node_output import NodeOutput, Tap
from trainer.launch.status_files import StatusFiles

# Seconds in which the other ranks may notice by themselves that one has failed, and say so.
GRACE_SECONDS = 2.0
# Then they are killed. A rank that is writing a checkpoint gets so many seconds to finish it.
LONGEST_WRITE_SECONDS = 900.0
# Seconds for which a process that a rank has left behind may keep the rank's output pipe open.
LEFT_BEHIND_SECONDS = 1.0
# Seconds to hand on what is left in a pipe, where standard output is slow.
LAST_LINES_SECONDS = 10.0

Start = Callable[[Mapping[str, str], int, int | None], subprocess.Popen[bytes]]
"""Starts a process with these variables, standard input and output; see `process_of`."""


def process_of(command: Sequence[str], folder: Path | None = None) -> Start:
    """What starts that program and its arguments, in that folder or in the one of this process.

    Its third argument is an open file for all that the process prints; None: it prints where this
    process does. It raises OSError if the program cannot be started.
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
    """One process for each local rank, and the pipe that ends them with this process."""

    has_lifeline = True
    """Whether the processes read that pipe; else their standard input is empty."""
    has_reports = True
    """Whether each process reports its end (status_files.py) and has an exit code of ours."""

    def __init__(
        self,
        start: Start,
        environments: Sequence[Mapping[str, str]],
        status: StatusFiles,
        output: NodeOutput,
        tap: Tap | None = None,
    ):
        """Start a process with each of `environments`, by local rank; they name its RANK.

        Without a RANK a process starts several ranks itself.

        Args:
            start: starts one.
            environments: all variables of each process.
            status: the files of this node.
            output: where the lines go.
            tap: is given what they print too.

        Raises:
            OSError: the program cannot be started.
        """
        self._status, self._say = status, output.say
        ranks = [environment.get("RANK") for environment in environments]
        self._ranks = [int(rank) if rank is not None else None for rank in ranks]
        self._pipes = [output.pipe(rank, tap) for rank in self._ranks]
        self._ending_since: float | None = None
        self._is_waiting_for_write = False
        self.gone: list[int] = []
        """Local ranks that ended first and could not say why, or have not."""
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
        """Process ids, by local rank."""
        return [process.pid for process in self._processes]

    def exit_codes(self) -> list[int | None]:
        """Exit codes by local rank: None if it runs, negative if a signal has ended it."""
        return [process.poll() for process in self._processes]

    def is_running(self) -> bool:
        """Whether any of them runs."""
        return None in self.exit_codes()

    def has_failed(self) -> bool:
        """Whether any of them has ended otherwise than by finishing or by a request to stop."""
        expected = (None, ExitCode.DONE, ExitCode.PREEMPTED)
        return any(code not in expected for code in self.exit_codes())

    def say_who_was_killed(self) -> None:
        """Name the ranks that cannot say anything themselves, or have not: those that a signal has
        ended, and those that ended without a report.

        For the moment at which the first rank has failed: the others are killed later, by us.
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
        """Ask all ranks to save and end; there is no limit of time."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)

    def end_soon(self) -> None:
        """End all ranks; call it repeatedly until none runs.

        Only a rank that is writing a checkpoint gets time to finish it.
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
            elif process.poll() is None and not self._is_waiting_for_write:
                self._is_waiting_for_write = True
                self._say("a checkpoint is being written: waiting for its end")

    def wait(self, seconds: float) -> None:
        """Wait at most so long for the end of one that still runs."""
        running = [process for process in self._processes if process.poll() is None]
        if running:
            with suppress(subprocess.TimeoutExpired):
                running[0].wait(seconds)

    def close(self) -> None:
        """Close the pipe, at whose end any rank that still runs ends itself.

        Before it returns, all that the ranks have printed is handed on. A process that a rank has
        left behind may have its pipe still open: that one is waited for a moment only.
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
    """In words: a signal has ended a process."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL:
        return f"was killed by {name}: by the kernel for lack of memory, or by somebody"
    return f"was ended by {name}"
