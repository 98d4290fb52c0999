"""The `Work` that runs our trainer: it starts `python -m trainer train` for each rank."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Mapping, Sequence

from trainer.checkpoint.run_identity import read_done_marker
from trainer.checkpoint.store import newest_name
from trainer.config import RunConfig
from trainer.launch.exit_codes import ExitCode
from trainer.launch.local_ranks import LocalRanks, killed_by
from trainer.launch.membership import Round
from trainer.launch.node_output import NodeOutput
from trainer.launch.spare import Spares
from trainer.launch.status_files import ExitReport, StatusFiles
from trainer.program.carry import own_command
from trainer.run_folder import CHECKPOINTS_DIR

# Right after the first step the processor is busy: every rank reports that step. Spare processes
# import torch, so the next ones are started some seconds later.
_SETTLE_SECONDS = 5.0


class OwnTrainer:
    """Starts the ranks of our trainer and reads how they do.

    The ranks write their progress to status files, and rank 0 writes the marker of a finished run.
    """

    how_to_go_on = "raise train.max_steps to go on"
    is_our_trainer = True

    def __init__(
        self,
        config: RunConfig,
        config_arguments: Sequence[str],
        local_ranks: int,
        status: StatusFiles,
        output: NodeOutput,
    ):
        """`config_arguments` go to the ranks unchanged."""
        self._config, self._local_ranks = config, local_ranks
        count = local_ranks if config.train.spare_processes else 0
        self._spares = Spares(own_command("train", *config_arguments), count)
        self._in_common: Mapping[str, str] = {}
        self._next_spares_at: float | None = None  # None: the ranks have not stepped yet
        self._status, self._output = status, output
        self._ranks: LocalRanks | None = None

    def prepare(self, environment: Mapping[str, str]) -> None:
        """Start the spare processes, so that they import torch while the nodes gather."""
        self._in_common, self._next_spares_at = environment, None
        self._spares.prepare(environment)

    def start(self, here: Round, environments: Sequence[Mapping[str, str]]) -> LocalRanks:
        """See `Work`."""
        self._ranks = LocalRanks(self._spares.start, environments, self._status, self._output)
        return self._ranks

    def poll(self) -> bool:
        """See `Work`. Some seconds after the first step, also start the next spare processes."""
        has_stepped = self._status.all_stepped(self._local_ranks)
        if has_stepped and self._next_spares_at is None:
            self._next_spares_at = time.monotonic() + _SETTLE_SECONDS
        if self._next_spares_at is not None and time.monotonic() >= self._next_spares_at:
            self._next_spares_at = math.inf  # once in a round
            self._spares.prepare(self._in_common)
        return has_stepped

    def ends(self) -> None:
        """Do nothing: rank 0 reports its steps by itself."""

    def report(self) -> ExitReport:
        """See `Work`."""
        assert self._ranks is not None
        reports = self._status.exit_reports(self._local_ranks)
        order = self._status.exit_order(self._local_ranks)
        return combine_exit_reports(reports, self._ranks.exit_codes(), order, self._ranks.gone)

    def round_is_done(self) -> None:
        """Do nothing: rank 0 has already written the marker of the finished run."""

    def close(self) -> None:
        """See `Work`."""
        self._spares.close()

    def finished(self) -> str | None:
        """See `Work`."""
        marker = read_done_marker(self._config)
        if marker is None:
            return None
        loss = f"loss {marker['loss']:.4f}" if marker["loss"] is not None else "no loss"
        return f"step {marker['step']}, {loss}"

    def newest(self) -> str:
        """Return the name of the newest checkpoint, which contains its step; empty if none."""
        return newest_name(self._config.run_dir / CHECKPOINTS_DIR)

    def recorded(self) -> str:
        """See `Work`."""
        return self.newest()


MAY_BE_VICTIMS = (-signal.SIGABRT, -signal.SIGTERM)
"""Signals with which a library ends a rank that has lost another one."""


def combine_exit_reports(
    reports: Sequence[ExitReport | None],
    exit_codes: Sequence[int | None],
    order: Sequence[int] | None = None,
    gone: Sequence[int] = (),
) -> ExitReport:
    """Decide how a node's round ended, from the reports and the exit codes of its ranks.

    A rank that was killed, or ended without a report, is taken as the cause before the ranks that
    failed because they lost it. Among ranks with reports, the one that reported first is the cause:
    a rank reports its error before it ends, and only then do the other ranks lose it.

    Args:
        reports: the report of each local rank; None for a rank that has not reported.
        exit_codes: the exit code of each local rank.
        order: the local ranks in the order in which they reported; by default by their number.
        gone: the local ranks that ended first, by a signal or without giving a reason.
    """
    in_order = [reports[rank] for rank in (range(len(reports)) if order is None else order)]
    reported = [report for report in in_order if report is not None]
    causes = [rank for rank in gone if exit_codes[rank] not in MAY_BE_VICTIMS]
    for code in (ExitCode.FATAL, ExitCode.RETRYABLE, ExitCode.PREEMPTED):
        if code == ExitCode.RETRYABLE and (first := _silent(reports, exit_codes, causes)):
            return _ended_silently(first)
        if code == ExitCode.PREEMPTED and len(reported) < len(reports):
            break
        for report in reported:
            if report.code == code:
                return report
    silent = _silent(reports, exit_codes, range(len(reports)))
    return _ended_silently(silent) if silent else ExitReport(ExitCode.DONE, reported[0].reason)


def _silent(
    reports: Sequence[ExitReport | None], exit_codes: Sequence[int | None], ranks: Sequence[int]
) -> list[str]:
    """Say how each of `ranks` without a report has ended."""
    return [_end_of(rank, exit_codes[rank]) for rank in ranks if reports[rank] is None]


def _end_of(local_rank: int, code: int | None) -> str:
    if code is not None and code < 0:
        return f"local rank {local_rank} {killed_by(-code)}"
    return f"local rank {local_rank} ended with exit status {code} and gave no reason"


def _ended_silently(ends: Sequence[str]) -> ExitReport:
    return ExitReport(ExitCode.RETRYABLE, "; ".join(ends))
