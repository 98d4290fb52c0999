"""Brings a run's files home: look, choose, transfer, and look again where something has changed."""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from cli.fetch.folder import Folder, write
from cli.fetch.partial import PartialFile
from cli.fetch.progress import Progress
from cli.fetch.transfer import DamagedError, GoneError, Send, Transfer
from cli.fetch.wanted import (
    LATEST,
    MANIFEST,
    Checkpoint,
    FoundRun,
    Wanted,
    at,
    checkpoint_files,
    checkpoint_folder,
    choose,
    parse_look,
)
from infra.kube.errors import TaskError

MOST_LOOKS = 6  # a run that removes checkpoints faster than they come would go on for ever


class Source(Protocol):
    """Where a run is: a pod on the volume, or the run's mirror.

    `where` names it in messages.
    """

    where: str

    def ask(self, *words: str) -> dict[str, Any]:
        """The answer of `pod_program.py` to a command."""
        ...

    def open_send(self, run_path: str, names: Sequence[str]) -> Callable[[], Send]:
        """Opens streams that send pieces of the run's files of these names."""
        ...


@dataclass(frozen=True)
class Brought:
    """What is in the folder now.

    Args:
        checkpoint: None where none was asked for.
        files: number of all files.
        size: of all files, in bytes.
        sent: bytes that had to be sent for it.
        seconds: how long that took.
    """

    checkpoint: Checkpoint | None
    files: int
    size: int
    sent: int
    seconds: float


class Bringer:
    """One fetch of one run.

    Args:
        source: where the run is.
        run_path: its folder there.
        folder: where it is to be.
        choice: which checkpoint: latest, best, none or a step.
        streams: how many at once.
        say: prints a line.
    """

    def __init__(
        self,
        source: Source,
        run_path: str,
        folder: Folder,
        choice: str,
        streams: int,
        say: Callable[[str], None],
    ) -> None:
        self._source, self._run_path, self._folder = source, run_path, folder
        self._choice, self._streams, self._say = choice, streams, say
        self._refused: dict[int, str] = {}
        self._said: set[str] = set()
        self._sent = 0

    def bring(self) -> Brought:
        """Return when everything is here and right.

        Raises:
            NoRunError: there is no such run.
            ValueError: there is no such checkpoint, it is damaged, or the folder has files of
                somebody else.
            TaskError: the source cannot read, or the connection is cut again and again.
            OSError: this machine cannot write.
        """
        begin = time.monotonic()
        for _ in range(MOST_LOOKS):
            run = self._look()
            where = self._source.where
            checkpoint, notes = choose(run.checkpoints, self._choice, self._refused, where)
            self._say_once(notes)
            wanted = [*run.files, *(checkpoint_files(checkpoint) if checkpoint else [])]
            try:
                self._transfer(wanted, checkpoint)
            except GoneError as gone:
                self._say(f"{gone}; {self._source.where} is looked at again")
            except DamagedError as damaged:
                self._judge(damaged)
            else:
                self._folder.drop_unfinished()
                size = sum(each.size for each in wanted)
                seconds = time.monotonic() - begin
                return Brought(checkpoint, len(wanted), size, self._sent, seconds)
        raise TaskError(
            f"the run has changed {MOST_LOOKS} times while it was fetched: its checkpoints are "
            "removed before they are here. Raise run.checkpoint.keep_last, or fetch one that "
            "stays: --checkpoint best"
        )

    def _look(self) -> FoundRun:
        answer = self._source.ask("look", self._run_path)
        return parse_look(answer, PurePosixPath(self._run_path).name, self._source.where)

    def _transfer(self, wanted: Sequence[Wanted], checkpoint: Checkpoint | None) -> None:
        missing = self._folder.plan(wanted)
        manifest = f"{checkpoint_folder(checkpoint.step)}/{MANIFEST}" if checkpoint else ""
        if not missing:
            return
        self._folder.note(missing)
        if checkpoint and any(each.name.startswith(_folder_of(manifest)) for each in missing):
            self._folder.withdraw(checkpoint_folder(checkpoint.step))
        coming = sorted((each for each in missing if each.name != manifest), key=_turn)
        files = [PartialFile(self._folder.root / e.name, e.size, e.sha256) for e in coming]
        arrived, total = sum(f.arrived_bytes for f in files), sum(f.size for f in files)
        _check_space(self._folder.root, total - arrived)
        how = f", {arrived:,} of them are here from before" if arrived else ""
        what = f" with checkpoint step {checkpoint.step}" if checkpoint else ""
        self._say(f"{len(files)} files{what}: {total:,} bytes{how}")
        open_send = self._source.open_send(self._run_path, [each.name for each in coming])
        progress = Progress(total, arrived, sys.stderr)
        try:
            Transfer(files, open_send, self._streams, progress, self._say).run()
        finally:
            self._sent += progress.done - arrived
        if checkpoint:  # last: without it the checkpoint is none for any reader
            write(self._folder.root / manifest, checkpoint.manifest)

    def _judge(self, damaged: DamagedError) -> None:
        """What it means that a file has other contents than it must have."""
        where = damaged.file.target.relative_to(self._folder.root)
        if where.parts[0] != "checkpoints":
            self._say(f"{where} was rewritten while it was read; it is copied again")
            return
        directory = str(PurePosixPath(self._run_path) / where.parent.as_posix())
        answer = self._source.ask("verify", directory)
        reason = str(answer["problem"])
        if not answer["found"] or not reason:
            self._say(
                f"{where} is not what was sent, or was replaced meanwhile; it is copied again"
            )
            return
        self._refused[int(where.parent.name.removeprefix("step-"))] = reason
        if self._choice != LATEST:
            return  # `choose` refuses it
        self._say(f"{where.parent.name} is damaged {at(self._source.where)}: {reason}")

    def _say_once(self, lines: Sequence[str]) -> None:
        for line in lines:
            if line not in self._said:
                self._said.add(line)
                self._say(line)


def _turn(file: Wanted) -> tuple[bool, int]:
    """First what may change soon; then the largest, which are checked while others come."""
    return file.name.startswith("checkpoints/"), -file.size


def _folder_of(name: str) -> str:
    return f"{name.rpartition('/')[0]}/"


def _check_space(root: Path, needed: int) -> None:
    free = shutil.disk_usage(root).free
    if needed > free:
        raise ValueError(
            f"--to {root}: {needed:,} bytes are to be copied, and {free:,} are free there. Free "
            "some space, choose another folder, or fetch only the metrics: --checkpoint none"
        )
