"""Decides which files of a run are copied, from the source's answer and the user's choice.

This module is pure.
"""

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
    """The source has no run with this name."""


@dataclass(frozen=True)
class Wanted:
    """A file that is to be copied.

    `name` is its path in the run's folder, with `/`; `size` is in bytes; `sha256` is in hex digits.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint on the volume, or in the mirror.

    Args:
        step: the number of the step after which it was saved.
        manifest: the text of its manifest.json.
        val_loss: its validation loss; None if none was measured at that step.
        problem: why it is not complete; empty if it is complete.
    """

    step: int
    manifest: str
    val_loss: float | None
    problem: str


@dataclass(frozen=True)
class FoundRun:
    """What a run has at the source: its files, and its checkpoints with the newest first.

    `links` describes what is not copied because it is a link, in a text for each.
    """

    files: tuple[Wanted, ...]
    checkpoints: tuple[Checkpoint, ...]
    links: tuple[str, ...]


def parse_choice(text: str) -> str:
    """Return the value of `--checkpoint`.

    Raises ValueError if it is neither latest, best or none, nor the number of a step.
    """
    if text in (LATEST, BEST, NONE) or (text.isascii() and text.isdecimal()):
        return text
    raise ValueError(
        f"--checkpoint: {text!r} cannot be used: it is no checkpoint. Use latest, best, none, or "
        "the number of a step"
    )


def parse_contents(given: Mapping[str, Any], run: str, where: str = VOLUME) -> FoundRun:
    """Read the source's answer to `list`.

    Args:
        given: the answer.
        run: the name of the run.
        where: the name of the source in messages.

    Raises:
        NoRunError: there is no such run; the text names the existing runs.
        ValueError: the name of a file is not UTF-8, so that no request can name it.
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
        tuple(f"{printable(name)} (to {printable(aim)})" for name, aim in given.get("links", ())),
    )


def choose(
    checkpoints: Sequence[Checkpoint],
    choice: str,
    refused: Mapping[int, str],
    where: str = VOLUME,
) -> tuple[Checkpoint | None, list[str]]:
    """Choose the checkpoint that is to be copied.

    Args:
        checkpoints: the checkpoints that the source has.
        choice: the user's choice, as `parse_choice` returns it.
        refused: the steps of checkpoints that turned out to be damaged, with the reasons.
        where: the name of the source in messages.

    Returns:
        The checkpoint, or None for the choice `none`; and lines about checkpoints that are skipped.

    Raises:
        ValueError: there is no such checkpoint, or it is damaged; the text has the reason.
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
    """Return `on the volume`, or `in the mirror ...`."""
    return f"{'on' if where == VOLUME else 'in'} {where}"


def checkpoint_folder(step: int) -> str:
    """Return the path of a checkpoint's folder in the run's folder."""
    return f"checkpoints/step-{step:08d}"


def checkpoint_files(checkpoint: Checkpoint) -> list[Wanted]:
    """Return the files of a checkpoint; the manifest is the last one."""
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
    """Return the checkpoint with the lowest validation loss (trainer: `retention.best_step`).

    Raises ValueError if none has a validation loss, or if the best one is damaged.
    """
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
    """Mark a checkpoint as damaged if its manifest names a file outside of its folder."""
    if checkpoint.problem:
        return checkpoint
    for name in json.loads(checkpoint.manifest)["files"]:
        if "/" in name or name in ("", ".", ".."):
            reason = f"{MANIFEST} names {name!r}, which is no file of it"
            return Checkpoint(checkpoint.step, checkpoint.manifest, checkpoint.val_loss, reason)
    return checkpoint
