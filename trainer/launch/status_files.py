"""Small files by which the ranks of one node tell the entrypoint how far they are.

    stepped-<local_rank>   the rank has completed a step since its start
    saving-<local_rank>    the rank is writing a checkpoint: it must not be killed now
    beat-<local_rank>      what the rank does now (trainer/watch/beat.py)
    stack-<local_rank>     the rank's Python stack, if the entrypoint has asked for it
    reason-<sha256>        a rank has printed this reason for its end
    exit-<local_rank>      how the rank ended: exit code and reason, as JSON
    variables-<pid>        environment variables of a rank that was a spare, which /proc does not
                           show: NAME=VALUE, each ended by a zero byte
    nccl-<local_rank>.<pid>  what NCCL has printed in the rank (trainer/transport/watch.py)
    ready                  all local ranks have stepped, or the run is done (readiness probe)

The directory is /tmp/disttrain, or the one in the variable DISTTRAIN_READY_DIR.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from trainer.checkpoint.durable import write_json
from trainer.launch.exit_codes import ExitCode, FatalError
from trainer.launch.lifeline import started_by_entrypoint

READY_DIR_VARIABLE = "DISTTRAIN_READY_DIR"
READY_FILE = "ready"
_DEFAULT_DIR = "/tmp/disttrain"
_EACH = (
    "stepped-*",
    "saving-*",
    "beat-*",
    "stack-*",
    "reason-*",
    "exit-*",
    "variables-*",
    "nccl-*",
)


@dataclass(frozen=True)
class ExitReport:
    """How a rank, or all ranks of a node, ended."""

    code: ExitCode
    reason: str


class StatusFiles:
    """The status files of one node."""

    def __init__(self, directory: Path | None = None):
        self._directory = directory or Path(os.environ.get(READY_DIR_VARIABLE, _DEFAULT_DIR))
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FatalError(
                f"{READY_DIR_VARIABLE}: {self._directory} cannot be made: {error}"
            ) from error

    def clear(self) -> None:
        """Remove all status files. Call this before the ranks of this node are started."""
        for pattern in (READY_FILE, *_EACH):
            for path in self._directory.glob(pattern):
                path.unlink(missing_ok=True)

    def mark_stepped(self, local_rank: int) -> None:
        """Note that a rank has stepped. Called by the rank after its first completed step."""
        (self._directory / f"stepped-{local_rank}").touch()

    def mark_ready(self) -> None:
        """Let the readiness probe succeed."""
        (self._directory / READY_FILE).touch()

    def all_stepped(self, local_ranks: int) -> bool:
        """Whether every rank of this node has stepped."""
        return all((self._directory / f"stepped-{r}").exists() for r in range(local_ranks))

    def tell_variables(self, pid: int, variables: Mapping[str, str]) -> None:
        """Write the variables of a rank that was a spare, for cli/shell/rank_program.py."""
        text = "".join(f"{name}={value}\0" for name, value in variables.items())
        (self._directory / f"variables-{pid}").write_text(text, "utf-8", "surrogateescape")

    def beat_file(self, local_rank: int) -> Path:
        """Return the path of the file in which a rank tells all the time what it does."""
        return self._directory / f"beat-{local_rank}"

    def stack_file(self, local_rank: int) -> Path:
        """Return the path of the file to which a rank writes its stack when it is asked."""
        return self._directory / f"stack-{local_rank}"

    def nccl_file(self, local_rank: int) -> Path:
        """Return the path for NCCL's output; NCCL adds a dot and the process id to it."""
        return self._directory / f"nccl-{local_rank}"

    def mark_saving(self, local_rank: int, is_saving: bool) -> None:
        """Note whether a rank is writing a checkpoint. Called by the rank."""
        path = self._directory / f"saving-{local_rank}"
        if is_saving:
            path.touch()
        else:
            path.unlink(missing_ok=True)

    def is_saving(self, local_rank: int) -> bool:
        """Whether a rank is writing a checkpoint."""
        return (self._directory / f"saving-{local_rank}").exists()

    def is_first_to_say(self, reason: str) -> bool:
        """Whether no other rank of this node has asked this about the same reason for its end.

        All ranks may find the same wrong setting, and only one of them has to print it.
        """
        digest = hashlib.sha256(reason.encode(errors="replace")).hexdigest()
        try:
            (self._directory / f"reason-{digest}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def report_exit(self, local_rank: int, ending: ExitReport) -> None:
        """Write how a rank ended. The rank calls this last; a killed rank leaves no report."""
        value = {"code": int(ending.code), "reason": ending.reason}
        write_json(self._directory / f"exit-{local_rank}", value)

    def exit_order(self, local_ranks: int) -> list[int]:
        """Return the local ranks in the order of their reports; those without a report last."""

        def at(rank: int) -> float:
            path = self._directory / f"exit-{rank}"
            return path.stat().st_mtime_ns if path.exists() else math.inf

        return sorted(range(local_ranks), key=at)

    def exit_reports(self, local_ranks: int) -> list[ExitReport | None]:
        """Return the report of each local rank; None for a rank that has not written one."""
        found: list[ExitReport | None] = []
        for rank in range(local_ranks):
            path = self._directory / f"exit-{rank}"
            value = json.loads(path.read_text()) if path.exists() else None
            found.append(value and ExitReport(ExitCode(value["code"]), value["reason"]))
        return found


class SavingMark:
    """Tells the entrypoint, if there is one, that this rank is writing a checkpoint."""

    def __init__(self, local_rank: int):
        self._local_rank = local_rank
        self._status = StatusFiles() if started_by_entrypoint() else None

    def __enter__(self) -> None:
        if self._status is not None:
            self._status.mark_saving(self._local_rank, True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.mark_saving(self._local_rank, False)
