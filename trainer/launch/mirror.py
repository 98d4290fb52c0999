"""Keeps the process that copies checkpoints to the mirror running, and waits for it at the end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from trainer.checkpoint.store import newest_name
from trainer.config import RunConfig
from trainer.launch.exit_codes import ExitCode
from trainer.launch.killing import kill
from trainer.launch.lifeline import LIFELINE_VARIABLE
from trainer.launch.line_pipe import LinePipe
from trainer.launch.local_ranks import killed_by
from trainer.launch.node_output import NodeOutput
from trainer.launch.signed_lines import RUN_KEY_VARIABLE
from trainer.mirror.status import read_status
from trainer.program.carry import own_command
from trainer.run_folder import CHECKPOINTS_DIR

AGAIN_SECONDS = 10.0
"""The pause between an unexpected end of the process and the start of the next one."""
_LAST_LINES_SECONDS = 1.0
_QUIET_SECONDS = 1.0  # A wait that takes longer is announced.


class MirrorProcess:
    """The process `python -m trainer mirror`; it runs on node 0 if the run has a mirror."""

    def __init__(
        self,
        config: RunConfig,
        config_arguments: Sequence[str],
        node_rank: int,
        output: NodeOutput,
    ) -> None:
        """`config_arguments` are passed to the process unchanged; `output` is the node's output."""
        self._config, self._output = config, output
        self._command = own_command("mirror", *config_arguments)
        self._is_wanted = config.checkpoint.mirror is not None and node_rank == 0
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: LinePipe | None = None
        self._lifeline = -1
        self._again_at: float | None = None  # None: `poll` has not seen it end

    def pids(self) -> list[int]:
        """Return a list with the id of the process, or an empty list if none was started."""
        return [self._process.pid] if self._process is not None else []

    def ensure_running(self) -> None:
        """Start the process if it does not run, unless it has ended as FATAL."""
        if not self._is_wanted or (self._process is not None and self._process.poll() is None):
            return
        if self._process is not None and self._process.returncode == ExitCode.FATAL:
            return  # it has said why it cannot run, and would fail again
        self._close_pipes()
        self._again_at = None
        read_end, self._lifeline = os.pipe()  # see trainer/launch/lifeline.py
        environment = {**os.environ, LIFELINE_VARIABLE: "stdin"}
        environment.pop(RUN_KEY_VARIABLE, None)
        self._pipe = self._output.pipe(None)
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=read_end,
                stdout=self._pipe.write_end if self._pipe is not None else None,
                stderr=subprocess.STDOUT if self._pipe is not None else None,
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(read_end)
            if self._pipe is not None:
                self._pipe.start()

    def poll(self) -> None:
        """Restart the process after a pause if it has ended. Call this while the ranks run."""
        if self._process is None or (code := self._process.poll()) is None:
            return
        if self._again_at is None:
            self._again_at = time.monotonic() + AGAIN_SECONDS
            how = killed_by(-code) if code < 0 else f"ended with exit status {code}"
            then = f"it is started again in {AGAIN_SECONDS:.0f} s"
            if code == ExitCode.FATAL:
                then = "nothing is copied before the next start of this pod"
            self._output.say(f"warning: the process of the mirror {how}; {then}")
        elif time.monotonic() >= self._again_at:
            with suppress(OSError):  # the ranks go on, and the next call tries again
                self.ensure_running()

    def finish(self) -> None:
        """Let the process copy what is left, and end it.

        After `checkpoint.mirror_wait_seconds` it is killed, and at once if the run has no
        checkpoint yet.
        """
        if self._process is None:
            return
        with suppress(OSError):  # the process has ended and cannot be restarted
            self.ensure_running()
            os.write(self._lifeline, b"f")
        newest = "unknown"
        with suppress(OSError):  # a volume that has failed must not replace the pod's exit code
            newest = newest_name(self._config.run_dir / CHECKPOINTS_DIR)
        if not newest:
            kill(self._process)
        elif not self._has_finished():
            kill(self._process)
            problem = ""
            with suppress(OSError):  # the volume may be why it has not finished
                problem = read_status(self._config.run_dir).problem
            problem = problem or "it takes longer"
            self._output.say(
                f"warning: the newest checkpoint is not in the mirror yet ({problem}); it is on "
                "the volume, and the next start of the run copies it"
            )
        self._close_pipes()
        self._process = None

    def _has_finished(self) -> bool:
        """Wait for the end of the process at most `checkpoint.mirror_wait_seconds`, and say so."""
        assert self._process is not None
        limit = self._config.checkpoint.mirror_wait_seconds
        quiet_seconds = min(_QUIET_SECONDS, limit)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(quiet_seconds)
            return True
        if limit > quiet_seconds:
            self._output.say(
                f"waiting until the mirror has the newest checkpoint, for at most {limit} s "
                "(checkpoint.mirror_wait_seconds)"
            )
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(limit - quiet_seconds)
            return True
        return False

    def _close_pipes(self) -> None:
        """Close the pipes of a process that has ended."""
        if self._pipe is not None:
            self._pipe.wait_for_end(_LAST_LINES_SECONDS)
            self._pipe.close(_LAST_LINES_SECONDS)
            self._pipe = None
        if self._lifeline >= 0:
            with suppress(OSError):
                os.close(self._lifeline)
            self._lifeline = -1
