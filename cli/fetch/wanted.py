"""Which files of a run are to come: what the source's `look` found, and the choice. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from cli.printable import is_text, printable

LATEST, BEST, NONE = "latest", "best", "none"
VOLUME = "the volume"
MANIFEST = "manifest.json"


class NoRunError(ValueError):
    """There is no such run where it was looked for."""


@dataclass(frozen=True)
class Wanted:
    """One file: its name below the run's folder, with `/`, and what it must contain."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint on the volume, or in the mirror.

    Args:
        step: how many updates are done.
        manifest: the text of its manifest.json.
        val_loss: its validation loss, None where none was measured at that step.
        problem: why it is not complete; empty where it is.
    """

    step: int
    manifest: str
    val_loss: float | None
    problem: str


@dataclass(frozen=True)
class FoundRun:
    """What a run has there: its files, and its checkpoints, the newest first."""

    files: tuple[Wanted, ...]
    checkpoints: tuple[Checkpoint, ...]


def parse_choice(text: str) -> str:
    """Raises ValueError: it is none of latest, best, none, and no step either."""
    if text in (LATEST, BEST, NONE) or (text.isascii() and text.isdecimal()):
        return text
    raise ValueError(
        f"--checkpoint: {text!r} cannot be used: it is no checkpoint. Use latest, best, none, or "
        "the number of a step"
    )


def parse_look(given: Mapping[str, Any], run: str, where: str = VOLUME) -> FoundRun:
    """Read the source's answer.

    Args:
        given: the answer.
        run: its name.
        where: which source that is.

    Raises:
        NoRunError: there is no such run; it names those there are.
        ValueError: a file has a name that no request can hold.
    """
    if not given["found"]:
        names = ", ".join(map(printable, cast(list[str], given["runs"]))) or "none at all"
        raise NoRunError(f"run {run!r} is not {at(where)}. The runs there: {names}")
    for name in (str(each["name"]) for each in given["files"]):
        if not is_text(name):
            raise ValueError(
                f"the file {name!r} of run {run!r} cannot be fetched, because its name is no text "
                "in UTF-8. Rename it on the volume"
            )
    return FoundRun(
        tuple(Wanted(**each) for each in given["files"]),
        tuple(_checked(Checkpoint(**each)) for each in given["checkpoints"]),
    )


def choose(
    checkpoints: Sequence[Checkpoint],
    choice: str,
    refused: Mapping[int, str],
    where: str = VOLUME,
) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint that is to come, None for `none`; and what has to be said of others.

    Args:
        checkpoints: those that are there.
        choice: as `parse_choice` gives it.
        refused: steps that turned out to be damaged, with the reason.
        where: which source that is.

    Raises:
        ValueError: there is no such checkpoint, or it is damaged; with the reason.
    """
    if choice == NONE:
        return None, []
    problems = {c.step: refused.get(c.step) or c.problem for c in checkpoints}
    if choice == BEST:
        return _best(checkpoints, refused, where), []
    if choice != LATEST:
        return _of_step(int(choice), checkpoints, problems, where), []
    said: list[str] = []
    for checkpoint in sorted(checkpoints, key=lambda c: c.step, reverse=True):
        if not problems[checkpoint.step]:
            return checkpoint, said
        said.append(f"checkpoint step {checkpoint.step} is skipped: {problems[checkpoint.step]}")
    reasons = f" ({'; '.join(said)})" if said else ""
    raise ValueError(
        f"--checkpoint: latest cannot be fetched: {where} has no verified checkpoint of this run"
        f"{reasons}. Use --checkpoint none for only its metrics"
    )


def at(where: str) -> str:
    """`on the volume`, `in the mirror ...`."""
    return f"{'on' if where == VOLUME else 'in'} {where}"


def checkpoint_folder(step: int) -> str:
    """Path of a checkpoint's folder below the run's."""
    return f"checkpoints/step-{step:08d}"


def checkpoint_files(checkpoint: Checkpoint) -> list[Wanted]:
    """The files of a checkpoint; the manifest is the last one."""
    folder = checkpoint_folder(checkpoint.step)
    entries = json.loads(checkpoint.manifest)["files"]
    found = [
        Wanted(f"{folder}/{name}", int(entry["bytes"]), str(entry["sha256"]))
        for name, entry in sorted(entries.items())
    ]
    content = checkpoint.manifest.encode()
    sha256 = hashlib.sha256(content).hexdigest()
    return [*found, Wanted(f"{folder}/{MANIFEST}", len(content), sha256)]


def _of_step(
    step: int, checkpoints: Sequence[Checkpoint], problems: Mapping[int, str], where: str
) -> Checkpoint:
    found = next((c for c in checkpoints if c.step == step), None)
    if found is None:
        there = ", ".join(str(c.step) for c in checkpoints) or "none"
        raise ValueError(
            f"--checkpoint: step {step} cannot be fetched: {where} has no checkpoint of it. The "
            f"steps there: {there}"
        )
    if problems[step]:
        raise ValueError(
            f"--checkpoint: step {step} cannot be fetched: {problems[step]}. Use latest, "
            "which is the newest one that is not damaged"
        )
    return found


def _best(checkpoints: Sequence[Checkpoint], refused: Mapping[int, str], where: str) -> Checkpoint:
    """The one with the lowest validation loss, as the trainer finds it (store.best_step)."""
    whole = (c for c in checkpoints if not c.problem)
    measured = [(c.val_loss, c.step, c) for c in whole if c.val_loss is not None]
    if not measured:
        raise ValueError(
            f"--checkpoint: best cannot be fetched: no complete checkpoint {at(where)} has a "
            "validation loss. Use latest, or a step"
        )
    found = min(measured, key=lambda each: each[:2])[2]
    if reason := refused.get(found.step):
        raise ValueError(
            f"--checkpoint: best cannot be fetched: it is step {found.step}, and {reason}. Use "
            "latest, or another step"
        )
    return found


def _checked(checkpoint: Checkpoint) -> Checkpoint:
    """One whose manifest names a file outside of its folder is a damaged one."""
    if checkpoint.problem:
        return checkpoint
    for name in json.loads(checkpoint.manifest)["files"]:
        if "/" in name or name in ("", ".", ".."):
            reason = f"{MANIFEST} names {name!r}, which is no file of it"
            return Checkpoint(checkpoint.step, checkpoint.manifest, checkpoint.val_loss, reason)
    return checkpoint
