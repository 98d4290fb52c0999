"""Makes one save at a time, from the copy of the tensors to the complete checkpoint.

    begin       every rank copies its part and writes it, in a thread       (training continues)
    go_on       all parts are written: rank 0 puts the checkpoint in place  (training continues)
    go_on       all ranks learn that the checkpoint is in place, or that it was given up

The writing threads never wait for other ranks. Instead the training threads exchange, after each
update, whether all ranks are done. So the training threads notice a rank that died, and a write may
take longer than a collective.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint import layout, retention, store, words
from trainer.checkpoint.arena import Arena
from trainer.checkpoint.background_save import BackgroundSave
from trainer.checkpoint.part_files import write_file
from trainer.checkpoint.run_lock import RunLock
from trainer.config import RunConfig
from trainer.launch.exit_codes import FatalError
from trainer.launch.status_files import SavingMark
from trainer.mirror.status import step_being_copied
from trainer.parallel.world import World
from trainer.run_folder import CHECKPOINTS_DIR
from trainer.volume.remedy import FULL, LASTING, remedy
from trainer.watch.beat import BEAT, Phase

MOST_FAILURES_IN_A_ROW = 3
_POLL_SECONDS = 1.0  # less than the smallest train.timeout_seconds
_PAUSE_SECONDS = 2.0
_PAGE_BYTES = 4096


@dataclass(frozen=True)
class _Job:
    """The save under way. At any time all ranks have one of the same step, or none."""

    step: int
    tensors: Mapping[str, torch.Tensor]
    state: Mapping[str, Any]
    note: str
    is_last: bool
    building: Path
    began: float
    is_committing: bool = False


class Save:
    """Writes the checkpoints of a run. All ranks must call its methods alike, except `drain`."""

    def __init__(
        self,
        config: RunConfig,
        world: World,
        device: torch.device,
        tag: str,
        lock: RunLock,
        say: Callable[[str], None],
    ):
        """`tag` is the same on all ranks, and differs at each start of the run."""
        self._keep, self._world, self._device = config.checkpoint, world, device
        self._root, self._tag, self._lock, self._say = (
            config.run_dir / CHECKPOINTS_DIR,
            tag,
            lock,
            say,
        )
        self._background = BackgroundSave()
        self._layout_text, self._files = "", list[layout.OwnFile]()
        self._arena: Arena | None = None
        self._job: _Job | None = None
        self._begun = self._failures_in_a_row = 0
        self.own_seconds = 0.0
        """The seconds that training has waited for this rank's own part of saves."""
        self.safe_step = 0
        """The step from which the run would continue after a kill."""
        self.before_commit: Callable[[], None] = lambda: None
        """Called on rank 0, in the writing thread, before a checkpoint is put in place. An OSError
        of it counts as an error of the save."""

    @property
    def is_under_way(self) -> bool:
        """Whether a save has begun, and has neither ended nor been given up."""
        return self._job is not None

    @property
    def is_busy(self) -> bool:
        """Whether this rank is still writing."""
        return not self._background.wait(0)

    def begin(
        self,
        step: int,
        tensors: Mapping[str, torch.Tensor],
        state: Mapping[str, Any],
        note: str,
        is_last: bool,
    ) -> None:
        """Begin to save `tensors`, which must not change until `let_weights_change`.

        Args:
            step: The number of updates already made.
            tensors: The tensors of this rank, whole ones or shards. Names and shapes must be the
                same in every save.
            state: JSON values, which `store.load_state` returns again.
            note: The end of the log line that says that the checkpoint is saved.
            is_last: Whether no other save follows. If so, this one is repeated if it fails.
        """
        if is_last:
            self._failures_in_a_row = 0
        self._start(step, tensors, state, note, is_last)

    def _start(
        self,
        step: int,
        tensors: Mapping[str, torch.Tensor],
        state: Mapping[str, Any],
        note: str,
        is_last: bool,
    ) -> None:
        assert self._job is None
        if self._arena is None:
            saved, files = layout.agree(self._world.gather_objects(layout.plan(tensors)))
            self._layout_text, self._files = layout.to_text(saved), files[self._world.rank]
            self._arena = Arena(sum(_room(file) for file in self._files), self._device)
        self._begun += 1
        building = store.building_directory(self._root, step, f"{self._tag}-{self._begun}")
        job = _Job(step, tensors, state, note, is_last, building, time.perf_counter())
        self._say(words.begun(store.directory_of(self._root, step).name))
        arena, start, sources = self._arena, 0, list[tuple[int, torch.Tensor]]()
        for file in self._files:
            sources += [(start + begin, _here(tensors[name])) for name, begin in file.begins]
            start += _room(file)
        arena.begin(sources)
        self._job = job
        self._background.start(lambda: self._write(job, arena))

    @property
    def is_copied(self) -> bool:
        """Whether the weights may change without `let_weights_change`."""
        return self._arena is None or self._arena.is_filled

    def let_weights_change(self) -> None:
        """Make the save independent of the weights. Call this before each update."""
        if self._arena is not None:
            begin = time.perf_counter()
            self._arena.let_weights_change()
            self.own_seconds += time.perf_counter() - begin

    def go_on(self) -> None:
        """Begin the next part of the save under way, if there is one. No rank may be busy.

        Raises:
            FatalError: A checkpoint could not be written.
        """
        if self._job is None:
            return
        try:
            mine = self._background.result()
        except BaseException:
            # `drain` must not put in place what was written only in part.
            self._job = None
            raise
        results = self._world.gather_objects(mine)
        if failures := [result for result in results if "error" in result]:
            self._give_up(self._job, failures)
        elif self._job.is_committing:
            self.safe_step, self._failures_in_a_row, self._job = self._job.step, 0, None
        else:
            self._job = job = replace(self._job, is_committing=True)
            if self._world.is_main:
                files = {name: entry for result in results for name, entry in result.items()}
                self._background.start(lambda: self._commit(job, files))

    def wait(self) -> None:
        """Return when nothing is being saved any more.

        The ranks exchange again and again whether they are done. So a write may take longer than
        `train.timeout_seconds`, which bounds each collective.

        Raises:
            FatalError: A checkpoint could not be written.
        """
        if self._job is not None:
            BEAT.phase(Phase.SAVE)
        said = -1  # the step for which the log line about the wait was written
        while (job := self._job) is not None:
            begin = time.perf_counter()
            is_busy = not self._background.wait(_POLL_SECONDS)
            if not job.is_committing:  # Only rank 0 commits.
                self.own_seconds += time.perf_counter() - begin
            if not self._world.any(is_busy):
                self.go_on()
            elif said != job.step:
                said = job.step
                self._say(words.waited_for(store.directory_of(self._root, said).name))

    def drain(self) -> None:
        """Wait until this rank has written its files.

        If it is the only rank, wait until the checkpoint is complete.
        """
        if self._world.size == 1:
            self.wait()
        else:
            self._background.wait()

    def _write(self, job: _Job, arena: Arena) -> dict[str, Any]:
        """Write this rank's files in the writing thread, and return their manifest entries."""
        entries: dict[str, Any] = {}
        with self._mark(self._world.size == 1):
            job.building.mkdir(parents=True, exist_ok=True)
            start = 0
            for file in self._files:
                pieces = arena.pieces(start, start + file.size_bytes)
                entries[file.name] = write_file(job.building / file.name, pieces)
                start += _room(file)
            if self._world.is_main:
                state = json.dumps(job.state, allow_nan=False) + "\n"
                for name, text in (
                    (store.STATE_FILE, state),
                    (store.LAYOUT_FILE, self._layout_text),
                ):
                    entries[name] = write_file(job.building / name, [text.encode()])
        return entries

    def _commit(self, job: _Job, files: Mapping[str, Any]) -> dict[str, Any]:
        """Put the checkpoint in place, and remove old ones, in the writing thread of rank 0."""
        with self._mark(True):
            self.before_commit()
            store.commit(job.building, job.step, files, self._lock.check)
        seconds = time.perf_counter() - job.began
        name = store.directory_of(self._root, job.step).name
        self._say(f"{words.saved(name, seconds)}{job.note}")
        self._prune()
        return {}

    def _prune(self) -> None:
        """Remove checkpoints that are no longer needed. An error of the storage is only printed.

        The new checkpoint is in place, so its save must not count as failed.
        """
        keep = self._keep
        try:
            held = step_being_copied(self._root.parent) if keep.mirror else None
        except OSError as error:
            self._say(f"old checkpoints were not looked at: {error}")
            return
        retention.prune(self._root, keep.keep_last, keep.keep_best, self._say, held)

    def _mark(self, is_worth_waiting_for: bool) -> SavingMark | nullcontext[None]:
        """Mark this rank as saving, if the save is worth waiting for after other ranks have died.

        That is so if this rank can complete the checkpoint without them.
        """
        return SavingMark(self._world.local_rank) if is_worth_waiting_for else nullcontext()

    def _give_up(self, job: _Job, failures: Sequence[Mapping[str, Any]]) -> None:
        """Drop this checkpoint, so that a short failure of the storage does not end the run.

        Raises:
            FatalError: The failure is lasting, or the last saves have failed too.
        """
        self._job = None
        self._failures_in_a_row += 1
        lasting = [failure for failure in failures if failure["errno"] in LASTING]
        first = (lasting or failures)[0]
        if self._world.is_main:
            shutil.rmtree(job.building, ignore_errors=True)
        text = f"{words.failed(job.step)}: {first['error']}; {self._others()}"
        if lasting or self._failures_in_a_row >= MOST_FAILURES_IN_A_ROW:
            count = self._keep.keep_last + 2
            room = f", for checkpoint.keep_last + 2 = {count} checkpoints"
            room = room if first["errno"] in FULL else ""
            raise FatalError(
                f"{text}, in {self._root}. {remedy(first['errno'])}{room}. Then start the run again"
            )
        self._say(
            f"warning: {text} (failure {self._failures_in_a_row} in a row, "
            f"{MOST_FAILURES_IN_A_ROW} end the run); "
            + ("trying again" if job.is_last else "the next checkpoint is tried")
        )
        if job.is_last:
            time.sleep(_PAUSE_SECONDS)
            self._start(job.step, job.tensors, job.state, job.note, job.is_last)

    def _others(self) -> str:
        try:
            names = [store.directory_of(self._root, s).name for s in store.all_steps(self._root)]
        except OSError:
            names = ["they cannot be listed now"]
        return f"the earlier ones are untouched ({', '.join(names) or 'there are none'})"


def _room(file: layout.OwnFile) -> int:
    """Return the bytes that a file takes in the arena, in which each file begins at a page."""
    return -(-file.size_bytes // _PAGE_BYTES) * _PAGE_BYTES


def _here(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor that is on this rank."""
    to_local: Callable[[], torch.Tensor] | None = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()
