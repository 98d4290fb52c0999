"""Copies checkpoints into the mirror: the files first, the manifest last.

A checkpoint without a manifest does not count for any reader (contents.py). So a copy that was
interrupted at any point leaves nothing that looks like a checkpoint. The run's settings, metrics
and tokenizer are copied after each checkpoint, so that they are not lost with the volume.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from trainer.checkpoint import retention, store, verified_words
from trainer.config import CheckpointConfig, RunConfig
from trainer.mirror.contents import (
    ENDED_MANIFEST_FILE,
    RESULTS,
    remote_manifests,
    run_url,
)
from trainer.mirror.owner import own
from trainer.mirror.plan import next_to_copy, too_many
from trainer.mirror.remote_folder import DamagedError, RemoteFolder, StoreError, is_refusal
from trainer.mirror.start_over import forget_start_over, has_started_over
from trainer.mirror.status import MirrorStatus, read_status, write_status
from trainer.run_folder import CHECKPOINTS_DIR


@dataclass(frozen=True)
class ChangedError(Exception):
    """A file differs from the checkpoint's manifest: it was damaged, or has been removed."""

    reason: str


def mirror_folder(config: RunConfig) -> RemoteFolder:
    """Return the folder of the run's checkpoints in its mirror.

    Raises:
        FatalError: no installed library supports the URL of the mirror.
    """
    assert config.checkpoint.mirror is not None
    url = f"{run_url(config.checkpoint.mirror, config.run_name)}/{CHECKPOINTS_DIR}"
    return RemoteFolder(url, config.checkpoint.mirror_bytes_per_second)


class Pusher:
    """Keeps the mirror of one run up to date."""

    def __init__(
        self,
        config: CheckpointConfig,
        run_dir: Path,
        mirror: RemoteFolder,
        say: Callable[[str], None],
    ) -> None:
        """`say` prints a line about each checkpoint that was copied or could not be copied."""
        self._config, self._run_dir, self._mirror, self._say = config, run_dir, mirror, say
        self._root = run_dir / "checkpoints"
        self._remote: dict[int, bytes] | None = None
        self._refused: dict[int, bytes] = {}
        self._results = mirror.parent()
        self._results_are_due = False
        self.status = read_status(run_dir)
        if self.status.url != mirror.url:
            self.status = MirrorStatus(mirror.url, owner=self.status.owner)

    def push_next(self) -> bool:
        """Copy one checkpoint if the mirror lacks one; return whether there was one to copy.

        The next call begins with copying the run's settings, metrics and tokenizer.

        Raises:
            StoreError: the store failed; another call goes on where this one stopped.
            FatalError: another volume fills this mirror now.
        """
        if self._remote is None:
            manifests = remote_manifests(self._mirror)
            self._abort_unfinished()
            self._remote = manifests
            # An earlier process may have been killed before it copied them.
            self._results_are_due = bool(self._remote and self.status.owner)
        if has_started_over(self._run_dir):
            self._end_former_training()
        if self._results_are_due:
            self._copy_results()
        local = self._local_manifests()
        best = retention.best_step(self._root) if self._config.keep_best else None
        step = next_to_copy(local, self._remote, best)
        if step is None:
            self._note(newest_step=max(self._remote, default=None))
            return False
        self._own()
        try:
            self._copy(step, local[step])
        except ChangedError as changed:
            self._refused[step] = local[step]
            self._say(f"step {step} was not copied: {changed.reason}")
            self.status.copying_step = None
            return True
        self._remote[step] = local[step]
        self._results_are_due = True
        self._remove_too_many(max(local), best)
        self._remove_leftovers(max(local))
        self._note(newest_step=max(self._remote))
        return True

    def _own(self) -> None:
        """Make sure that this volume fills the mirror, and no other. It keeps its name for ever."""
        known = self.status.owner or read_status(self._run_dir).owner
        self.status.owner = own(self._results, known)
        if not known:
            write_status(self._run_dir, self.status)

    def _abort_unfinished(self) -> None:
        """Remove the unfinished uploads of earlier starts, if the store and the rights allow it.

        Copies do not need that, so a refusal does not hold them up.
        """
        try:
            if left := self._results.abort_unfinished():
                self._say(f"{left} unfinished upload(s) of an earlier start were removed")
        except StoreError as error:
            if not is_refusal(error):
                raise
            self._say(
                f"warning: unfinished uploads of earlier starts stay in the store: {error}. Give "
                "the credentials the rights s3:ListBucketMultipartUploads and "
                "s3:AbortMultipartUpload, or let a rule of the bucket remove such uploads"
            )

    def _local_manifests(self) -> dict[int, bytes]:
        manifests: dict[int, bytes] = {}
        for step in store.complete_steps(self._root):
            try:
                path = store.directory_of(self._root, step) / store.MANIFEST_FILE
                manifest = path.read_bytes()
            except FileNotFoundError:  # it was just removed
                continue
            if self._refused.get(step) != manifest:
                manifests[step] = manifest
        return manifests

    def _copy(self, step: int, manifest: bytes) -> None:
        directory = store.directory_of(self._root, step)
        key = hashlib.sha256(manifest).hexdigest()
        status = self.status
        if status.copying_step != step or status.copied_manifest_sha256 != key:
            status.copied_files = []
            self._mirror.remove(f"{directory.name}/{store.MANIFEST_FILE}")
            if self._remote is not None:
                self._remote.pop(step, None)
        status.copying_step, status.copied_manifest_sha256 = step, key
        write_status(self._run_dir, status)
        started, sent_bytes = time.monotonic(), 0
        for name, entry in json.loads(manifest)["files"].items():
            if name in status.copied_files:
                continue
            sent_bytes += self._copy_file(directory, name, str(entry["sha256"]))
            status.copied_files.append(name)
            write_status(self._run_dir, status)
        self._mirror.write(f"{directory.name}/{store.MANIFEST_FILE}", manifest)
        seconds = time.monotonic() - started
        self._say(verified_words.copied(step, sent_bytes, seconds))

    def _copy_file(self, directory: Path, name: str, sha256: str) -> int:
        path = directory / name
        try:
            sent = self._mirror.copy_in(path, f"{directory.name}/{name}")
            size = path.stat().st_size
        except FileNotFoundError as error:
            raise ChangedError(f"{name} has been removed from the volume meanwhile") from error
        if sent != sha256:
            self._mirror.remove(f"{directory.name}/{name}")
            raise ChangedError(f"{path} does not have the sha256 of {store.MANIFEST_FILE}")
        return size

    def _copy_results(self) -> None:
        """Copy the run's settings, metrics and tokenizer.

        The metrics contain those of the copied checkpoint, because they are written before it.
        """
        self._own()
        for name in RESULTS:
            try:
                self._results.copy_in(self._run_dir / name, name)
            except FileNotFoundError:
                continue
        self._results_are_due = False

    def _end_former_training(self) -> None:
        """Give the manifests of an ended training another name: the copies count no more.

        Their files stay, as those on the volume do, until the new training comes to their steps.
        """
        assert self._remote is not None
        self._own()
        local = self._local_manifests()
        for step, manifest in sorted(self._remote.items()):
            if local.get(step) == manifest:
                continue
            folder = store.directory_of(Path(), step).name
            self._mirror.write(f"{folder}/{ENDED_MANIFEST_FILE}", manifest)
            self._mirror.remove(f"{folder}/{store.MANIFEST_FILE}")
            del self._remote[step]
            self._say(f"step {step} of the training that has ended counts no more in the mirror")
        forget_start_over(self._run_dir)

    def _remove_too_many(self, newest_local: int, best_local: int | None) -> None:
        assert self._remote is not None
        losses = {step: self._val_loss(step) for step in self._remote}
        for step in too_many(losses, newest_local, self._config.keep_last, best_local):
            folder = store.directory_of(Path(), step).name
            # The manifest goes first, so that the checkpoint is whole or not there.
            self._mirror.remove(f"{folder}/{store.MANIFEST_FILE}")
            self._mirror.remove_folder(folder)
            del self._remote[step]

    def _remove_leftovers(self, newest_local: int) -> None:
        """Remove what is left of an interrupted copy or removal that will not go on.

        It does not count as a checkpoint. If it belongs to the best checkpoint, that one is copied
        again completely.
        """
        assert self._remote is not None
        for name in self._mirror.names():
            step = store.step_of(name)
            if step is None or step >= newest_local or step in self._remote:
                continue
            # The process of a pod that is still ending may have completed it meanwhile.
            if store.MANIFEST_FILE not in self._mirror.names(name):
                self._mirror.remove_folder(name)

    def _val_loss(self, step: int) -> float | None:
        if not self._config.keep_best:
            return None
        folder = store.directory_of(Path(), step).name
        try:
            state: object = json.loads(self._mirror.read(f"{folder}/{store.STATE_FILE}") or b"{}")
        except (DamagedError, ValueError):  # restore skips it too
            return None
        value = cast(dict[str, object], state).get("val_loss") if isinstance(state, dict) else None
        return float(value) if isinstance(value, float | int) else None

    def _note(self, newest_step: int | None) -> None:
        """Write the status if it has changed."""
        status = MirrorStatus(self._mirror.url, newest_step, owner=self.status.owner)
        if status != read_status(self._run_dir):
            write_status(self._run_dir, status)
        self.status = status

    def note_problem(self, problem: str) -> None:
        """Write into the status why the mirror cannot go on."""
        self.status.set_problem(problem)
        write_status(self._run_dir, self.status)
