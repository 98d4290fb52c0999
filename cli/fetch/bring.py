"""Copies a run's files to this machine.

It lists the run's files, chooses a checkpoint and transfers the files. If something has changed in
the meantime, it begins again.
"""

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
    parse_contents,
)
from infra.command_line import Say
from infra.kube.errors import TaskError
from infra.kube.say import first_of

NO_LINKS = (
    "not copied, because these are links: {}. What they lead to is copied if it is in the run's "
    "folder"
)
MOST_TRIES = 6  # without a limit, a run that removes checkpoints too fast would be tried for ever


class Source(Protocol):
    """The place that a run is copied from: a pod on the volume, or the run's mirror.

    `where` is the name of the place in messages.
    """

    where: str

    def ask(self, *words: str) -> dict[str, Any]:
        """Return the answer to a command of `pod_program.py`."""
        ...

    def open_send(self, run_path: str, names: Sequence[str]) -> Callable[[], Send]:
        """Return a function that opens a stream for pieces of the run's files with these names."""
        ...


@dataclass(frozen=True)
class Brought:
    """What is in the folder after a fetch.

    Args:
        checkpoint: the checkpoint; None if none was asked for.
        files: the number of all files.
        size: the size of all files, in bytes.
        sent: how many bytes this fetch had to transfer.
        seconds: how long the fetch took.
    """

    checkpoint: Checkpoint | None
    files: int
    size: int
    sent: int
    seconds: float


class Bringer:
    """One fetch of one run.

    Args:
        source: the place that the run is copied from.
        run_path: the folder of the run at that place.
        folder: the folder on this machine that the run is copied to.
        choice: which checkpoint to copy: latest, best, none or a step.
        streams: the number of transfers at the same time.
        say: prints a line.
    """

    def __init__(
        self,
        source: Source,
        run_path: str,
        folder: Folder,
        choice: str,
        streams: int,
        say: Say,
    ) -> None:
        self._source, self._run_path, self._folder = source, run_path, folder
        self._choice, self._streams, self._say = choice, streams, say
        self._refused: dict[int, str] = {}
        self._said: set[str] = set()
        self._sent = 0

    def bring(self) -> Brought:
        """Copy everything that is missing, and return once every file is here and verified.

        Raises:
            NoRunError: there is no such run.
            ValueError: there is no such checkpoint, it is damaged, the folder has other files that
                this program has not written, or too little space is free.
            TaskError: the source cannot read, the connection is cut again and again, or the run
                has changed MOST_TRIES times.
            OSError: this machine cannot write.
        """
        begin = time.monotonic()
        for _ in range(MOST_TRIES):
            run = self._contents()
            if run.links:
                self._say_once([NO_LINKS.format(first_of(run.links, 3))])
            where = self._source.where
            checkpoint, notes = choose(run.checkpoints, self._choice, self._refused, where)
            self._say_once(notes)
            wanted = [*run.files, *(checkpoint_files(checkpoint) if checkpoint else [])]
            try:
                self._transfer(wanted, checkpoint)
            except GoneError as gone:
                self._say(f"{gone}; {self._source.where} is read again")
            except DamagedError as damaged:
                self._judge(damaged)
            else:
                self._folder.drop_unfinished()
                size = sum(each.size for each in wanted)
                seconds = time.monotonic() - begin
                return Brought(checkpoint, len(wanted), size, self._sent, seconds)
        raise TaskError(
            f"the run has changed {MOST_TRIES} times while it was fetched: its checkpoints are "
            "removed before they are here. Raise run.checkpoint.keep_last, or fetch one that "
            "stays: --checkpoint best"
        )

    def _contents(self) -> FoundRun:
        answer = self._source.ask("list", self._run_path)
        return parse_contents(answer, PurePosixPath(self._run_path).name, self._source.where)

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
        # The manifest is written last: without a manifest, no program takes the folder for a
        # checkpoint.
        if checkpoint:
            write(self._folder.root / manifest, checkpoint.manifest)

    def _judge(self, damaged: DamagedError) -> None:
        """Find out why the content of a file is wrong, and tell the user what happens next.

        If the checkpoint is damaged at the source, it is noted, so that it is not chosen again.
        """
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
            return  # in the next round `choose` raises an error with the reason
        self._say(f"{where.parent.name} is damaged {at(self._source.where)}: {reason}")

    def _say_once(self, lines: Sequence[str]) -> None:
        for line in lines:
            if line not in self._said:
                self._said.add(line)
                self._say(line)


def _turn(file: Wanted) -> tuple[bool, int]:
    """Return the key that sorts files for the transfer.

    Files beside the checkpoints come first, because they may soon change. Then large files come
    before small ones: their sha256 is computed while others are transferred.
    """
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
