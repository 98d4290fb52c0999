"""The `Work` that runs a user's own program; docs/programs.md explains it for users."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from trainer.checkpoint.run_lock import RunLock
from trainer.config import RunConfig
from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.launch.exit_codes import ExitCode, FatalError
from trainer.launch.local_ranks import LocalRanks
from trainer.launch.membership import Round
from trainer.launch.node import Node
from trainer.launch.node_output import NodeOutput
from trainer.launch.status_files import ExitReport, StatusFiles
from trainer.launch.stop_request import StopRequest
from trainer.program.environment import process_environments, process_names
from trainer.program.exits import report_of
from trainer.program.own_ranks import OwnRanksWatch
from trainer.program.peers import PeersWatch
from trainer.program.progress import Point, ProgressReader
from trainer.program.progress_file import ProgressFile
from trainer.program.ranks import ProgramRanks
from trainer.program.record import (
    Curve,
    growing_text,
    last_step,
    newest_change,
    read_program_done,
    write_program_done,
)

FILES_DIR = Path("/program")  # infra/workloads/pod.py mounts the user's files there
SAY_EVERY_SECONDS = 5.0
SAY_EVERY_LINES = 100
"""The progress is printed at least once in so many lines of the program.

`./disttrain status` reads only the last 200 lines of a pod."""
SAY_UNMATCHED_SECONDS = 60.0
RUNNING_SECONDS = 10.0
"""If steps cannot be seen, processes that have run for so many seconds count as training."""
_NEVER_STARTS = (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC)
UNSEEN = (
    "it runs; its steps are not seen, because neither program.progress nor program.progress_file "
    "is set"
)


class Program:
    """Starts the program's processes and reads their progress."""

    how_to_go_on = "change program.command, the program's files or its image to go on"
    is_our_trainer = False

    def __init__(
        self,
        config: RunConfig,
        node: Node,
        status: StatusFiles,
        output: NodeOutput,
        events: EventLog,
        stop: StopRequest,
        helpers: Callable[[], Collection[int]],
    ):
        """`helpers` returns the ids of the entrypoint's processes that are no ranks.

        The other arguments are the parts of the node's entrypoint.
        """
        self._helpers = helpers
        self._config, self._node, self._status = config, node, status
        self._output, self._events, self._stop = output, events, stop
        # Rank 0 is on node 0, so only node 0 sees steps. The ranks of other nodes count as training
        # once they have run for a while.
        program = config.program
        self._reads = node.rank == 0 and program.tells_steps
        reads_lines = self._reads and program.progress_file is None
        self._pattern = program.progress if reads_lines else None
        self._reader = ProgressReader(self._pattern)
        self._file: ProgressFile | None = None
        self._lock = RunLock(config.run_dir)
        self._ranks: ProgramRanks | None = None
        self._own_ranks: OwnRanksWatch | None = None
        self._peers: PeersWatch | None = None
        self._names = list[str]()
        self._curve: Curve | None = None
        self._last: Point | None = None
        self._reported: Point | None = None
        self._highest = 0
        self._has_stepped = self._has_said = self._is_ending = False
        self._started_at = self._said_at = 0.0
        self._lines = 0

    def prepare(self, environment: Mapping[str, str]) -> None:
        """Do nothing: a program can only be started when the ranks of the round are known."""

    def start(self, here: Round, environments: Sequence[Mapping[str, str]]) -> LocalRanks:
        """See `Work`."""
        config, node = self._config, self._node
        config.program_dir.mkdir(parents=True, exist_ok=True)
        if node.rank == 0:
            self._lock.acquire(self._output.say)
        self._reader = ProgressReader(self._pattern)
        self._reported, self._has_stepped, self._lines = None, False, 0
        self._has_said = self._is_ending = False
        self._started_at = self._said_at = time.monotonic()
        if self._reads:
            self._curve = Curve(config.run_dir, here.world_size, self._output.say)
            self._begin_file()
        self._names = process_names(config, node, here)
        try:
            self._ranks = ProgramRanks(
                config.program.command,
                process_environments(config, node, here, environments),
                self._status,
                self._output,
                FILES_DIR if config.program.files else None,
                self._tap,
                self._helpers,
                self._stop,
            )
        except OSError as error:
            if error.errno not in _NEVER_STARTS:
                raise
            raise FatalError(
                f"program.command: {config.program.command[0]!r} cannot be started "
                f"({error.strerror}). Name a program that the image has, or one of the files of "
                "program.files as ./NAME; a script needs a first line such as #!/bin/sh, which "
                "names a program that the image has (and no carriage returns)"
            ) from error
        place, say = here.nodes.index(node.rank), self._output.say
        self._own_ranks = OwnRanksWatch(self._ranks.by_pid(), place, here.world_size, say)
        self._peers = PeersWatch(place, len(here.nodes), say) if self._reads else None
        return self._ranks

    def poll(self) -> bool:
        """See `Work`. If this node cannot see steps, `RUNNING_SECONDS` of running count as one."""
        points, lines = self._reader.taken()
        self._lines += lines
        if self._file is not None:
            points += self._file.taken()
        if points:
            self._take(points)
        elif not self._reads:
            self._has_stepped = time.monotonic() - self._started_at > RUNNING_SECONDS
        self._say_sometimes()
        if self._own_ranks is not None:
            self._own_ranks.poll()
        if self._peers is not None:
            self._peers.poll(self._last.step if self._last and self._has_stepped else None)
        return self._has_stepped

    def ends(self) -> None:
        """Write the last report now; after it, none is written to the events in this round.

        A later report would say that the ranks train again.
        """
        self._report_rest()
        self._is_ending = True

    def _begin_file(self) -> None:
        """Begin to read the progress file of this start, in a new thread.

        The thread of an earlier start may still hang in a read from the volume.
        """
        program = self._config.program
        if program.progress_file is not None:
            path = self._config.program_dir / program.progress_file
            self._file = ProgressFile(path, program.progress)
            self._file.begin()

    def _report_rest(self) -> None:
        points = self._reader.taken()[0]
        if self._file is not None:
            points += self._file.taken()
        if points:
            self._take(points)
        if self._last is not None and self._reported != self._last:
            self._report_step(self._last)

    def report(self) -> ExitReport:
        """See `Work`."""
        assert self._ranks is not None
        self._lock.release()
        if self._file is not None:
            self._file.end()
        self._report_rest()
        self._file = None
        if self._curve is not None:
            self._curve.close()
            self._curve = None
        codes = [code for code in self._ranks.exit_codes() if code is not None]
        report = report_of(codes, self._names, self._ranks.were_asked)
        if report.code == ExitCode.DONE and self._node.rank == 0:
            # This has to come before the event of the round's end, which alone would count as a
            # restart. The step is 0 if none was seen. If another node fails now, the next round
            # takes this event back (trainer/events/history.py).
            last = self._last.step if self._last is not None else 0
            self._events.write(Name.FINISHED, step=last)
        return report

    def round_is_done(self) -> None:
        """See `Work`."""
        write_program_done(self._config, self._last)

    def close(self) -> None:
        """Do nothing: no process of the program runs between two rounds."""

    def finished(self) -> str | None:
        """See `Work`."""
        marker = read_program_done(self._config)
        if marker is None:
            return None
        if marker["step"] is None:
            return "the program has ended with exit code 0; its steps were not seen"
        loss = f", loss {marker['loss']:.4f}" if marker["loss"] is not None else ""
        return f"step {marker['step']}{loss}"

    def newest(self) -> str:
        """See `Work`. Return the highest step, or when a file of the program's folder last changed.

        The time is used if the program's settings do not tell how to see steps. A start that fails
        at the step at which the start before failed is no progress. Node 0 sees the steps, and the
        other nodes find them in the curve that it writes. Steps that node 0 has not written yet
        when they look count for the next start.
        """
        if not self._config.program.tells_steps:
            return newest_change(self._config.program_dir)
        if not self._reads:
            self._highest = max(self._highest, last_step(self._config.run_dir))
        return growing_text(self._highest)

    def recorded(self) -> str:
        """See `Work`."""
        if self._reads:
            return growing_text(last_step(self._config.run_dir))
        return self.newest()

    def _tap(self, rank: int | None, block: bytes) -> None:
        self._reader.take(block, of_rank_0=rank == 0 or rank is None)

    def _take(self, points: Sequence[Point]) -> None:
        """Keep new points, and write events about the first step of this start."""
        if self._curve is not None:
            self._curve.add(points)
        self._last = points[-1]
        self._highest = max(self._highest, *(point.step for point in points))
        if not self._has_stepped:
            self._has_stepped = True
            if not self._is_ending:
                before = max(0, points[0].step - 1)
                self._events.write(Name.RESTORED, step=before, tokens_per_step=0)
                self._events.write(Name.FIRST_STEP, step=points[0].step)
            self._report_step(self._last)

    def _say_sometimes(self) -> None:
        is_time = time.monotonic() - self._said_at >= SAY_EVERY_SECONDS
        if self._lines < SAY_EVERY_LINES and not is_time:
            return
        if self._reads and not self._has_stepped:
            if time.monotonic() - self._said_at > SAY_UNMATCHED_SECONDS:
                self._say(self._nothing_told)
        elif self._reads:
            if self._last is not None and self._last != self._reported:
                self._report_step(self._last)
        elif self._node.rank == 0 and self._has_stepped and (self._lines or not self._has_said):
            self._say(UNSEEN)

    @property
    def _nothing_told(self) -> str:
        program = self._config.program
        if program.progress_file is None:
            return "no line of rank 0 matches program.progress yet"
        path = self._config.program_dir / program.progress_file
        wanted = "is an object of JSON with step"
        wanted = wanted if program.progress is None else "matches program.progress"
        return f"no line of {path} {wanted} yet (program.progress_file)"

    def _report_step(self, point: Point) -> None:
        before = self._reported.step if self._reported is not None else point.step
        if not self._is_ending:
            self._events.write(
                Name.REPORT,
                step=point.step,
                steps=max(0, point.step - before),
                data_seconds=0.0,
                save_seconds=0.0,
                longest_seconds=0.0,
            )
        self._reported = point
        self._say(point.words())

    def _say(self, text: str) -> None:
        self._said_at, self._lines, self._has_said = time.monotonic(), 0, True
        self._output.say(f"program: {text}")
