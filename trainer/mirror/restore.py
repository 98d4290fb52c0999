"""Brings the newest good checkpoint of a mirror back to a volume that has none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from trainer.checkpoint import store
from trainer.checkpoint.durable import fsync_directory
from trainer.launch.exit_codes import FatalError, RetryableError
from trainer.mirror.contents import remote_manifests
from trainer.mirror.remote_folder import DamagedError, RemoteFolder, StoreError
from trainer.run_folder import METRICS_FILE, TOKENIZER_FILE


def restore(root: Path, mirror: RemoteFolder, say: Callable[[str], None]) -> int | None:
    """Fetch the newest checkpoint of `mirror` whose files all match its manifest.

    If the run's folder has no metrics, they are fetched first: the run appends to them, and the
    next copy to the mirror would overwrite the old ones there. The tokenizer's file is fetched too,
    if the mirror has one. Only the process that saves into `root` may call this. Damaged
    checkpoints of the mirror are skipped, with the reason. Damaged checkpoints in `root` are set
    aside once a good one was fetched.

    Args:
        root: The directory of all checkpoints of the run.
        mirror: The folder of the run's checkpoints in the mirror.
        say: Prints a line about each checkpoint that is fetched or skipped.

    Returns:
        The step of the checkpoint; None if the mirror holds no checkpoint.

    Raises:
        RetryableError: the mirror did not answer, so it is not known what it holds.
        FatalError: the mirror holds checkpoints and all of them are damaged.
    """
    try:
        manifests = remote_manifests(mirror)
        skipped: list[str] = []
        if manifests:
            _fetch_results(root.parent, mirror.parent(), say)
        for step in sorted(manifests, reverse=True):
            say(f"fetching step {step} from the mirror {mirror.url}")
            problem = _fetch(root, mirror, step, manifests[step])
            if problem is None:
                return step
            skipped.append(f"step {step} of the mirror is skipped: {problem}")
            say(skipped[-1])
    except StoreError as error:
        raise RetryableError(f"the mirror could not be asked: {error}") from error
    if skipped:
        raise FatalError(
            f"the mirror holds checkpoints, and none of them can be used: {'; '.join(skipped)}. "
            "Choose another run_name to start at step 0"
        )
    return None


def _fetch_results(run_dir: Path, mirror: RemoteFolder, say: Callable[[str], None]) -> None:
    """Fetch the metrics and the tokenizer's file if the run's folder lacks them."""
    there = mirror.names()
    for name in (METRICS_FILE, TOKENIZER_FILE):
        if name in there and not (run_dir / name).exists():
            _fetch_result(run_dir, mirror, name, say)


def _fetch_result(
    run_dir: Path, mirror: RemoteFolder, name: str, say: Callable[[str], None]
) -> None:
    building = run_dir / f".{name}.mirror-{os.getpid()}"
    building.unlink(missing_ok=True)  # left by a killed process with the same id
    try:
        mirror.copy_out(name, building)
        building.rename(run_dir / name)
        fsync_directory(run_dir)
    except DamagedError as error:
        say(f"{name} of the mirror is skipped: {error}")
    finally:
        building.unlink(missing_ok=True)


def _fetch(root: Path, mirror: RemoteFolder, step: int, manifest: bytes) -> str | None:
    """Fetch one checkpoint and put it in place; return why that was not possible, or None."""
    final = store.directory_of(root, step)
    building = root / f"{store.TEMPORARY_PREFIX}{final.name}-{os.getpid()}"
    try:
        files = {str(n): str(e["sha256"]) for n, e in json.loads(manifest)["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{store.MANIFEST_FILE} is damaged: {error!r}"
    shutil.rmtree(building, ignore_errors=True)  # left by a process with the same id
    try:
        building.mkdir()
        for name, sha256 in files.items():
            if Path(name).name != name:
                return f"{store.MANIFEST_FILE} lists {name!r}, which is not a plain file name"
            try:
                is_whole = mirror.copy_out(f"{final.name}/{name}", building / name) == sha256
            except DamagedError as error:
                return str(error)
            if not is_whole:
                return f"{name} does not have the sha256 of {store.MANIFEST_FILE}"
        (building / store.MANIFEST_FILE).write_bytes(manifest)
        fsync_directory(building)
        store.set_damaged_aside(root, None)  # one may have the same name
        building.rename(final)
        fsync_directory(root)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return None
