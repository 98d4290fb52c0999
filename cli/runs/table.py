"""Formats the runs as text for people and as JSON for programs. This module is pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import yaml

from cli.columns import columns
from cli.printable import printable
from cli.runs.in_use import Users
from cli.spans import span_of_seconds

HEAD = ("RUN", "STEP", "LOSS", "VAL LOSS", "CHECKPOINT", "SIZE", "USED BY")
COMPARED = ("RUN", "STEP", "LOSS", "VAL LOSS", "LOWEST VAL LOSS", "TOKENS", "TOKENS/S", "RANKS")
NOT_KNOWN = "-"


@dataclass(frozen=True)
class Run:
    """A run on the volume. A value that is not known is None, or an empty list.

    Args:
        name: the name of its folder.
        step: the step of the last record in metrics.jsonl.
        max_steps: the number of steps in its run.yaml.
        loss, val_loss: the last recorded losses, in nats per token.
        lowest_val_loss, lowest_val_loss_step: the lowest validation loss, and its step.
        checkpoint_step: the step of the newest complete checkpoint.
        checkpoint_age_seconds: the age of that checkpoint.
        size_bytes: the size of all its files.
        is_done: whether the run has finished.
        used_by: the stacks that have a record about it.
        tokens: the number of tokens that it was trained on.
        tokens_per_second: the last recorded speed.
        world_size: the last recorded number of ranks.
        problem: what could not be read; empty if everything was read.
    """

    name: str
    step: int | None
    max_steps: int | None
    loss: float | None
    val_loss: float | None
    lowest_val_loss: float | None
    lowest_val_loss_step: int | None
    checkpoint_step: int | None
    checkpoint_age_seconds: float | None
    size_bytes: int
    is_done: bool
    used_by: list[str]
    tokens: int | None
    tokens_per_second: float | None
    world_size: int | None
    problem: str = ""


@dataclass(frozen=True)
class Room:
    """The free and the total space of the volume, in bytes; None if it is not known."""

    free_bytes: int | None = None
    total_bytes: int | None = None

    def __str__(self) -> str:
        """A sentence; empty if the space is not known."""
        if self.free_bytes is None or not self.total_bytes:
            return ""
        return f"the volume has {size(self.free_bytes)} free of {size(self.total_bytes)}"


def parse_room(answer: Mapping[str, Any]) -> Room:
    """Return the space in the answer of the pod's program."""
    return Room(answer["free_bytes"], answer["total_bytes"])


def parse_runs(answer: Mapping[str, Any], users: Users) -> list[Run]:
    """Return the runs in the answer of the pod's program."""
    return [_parse_run(each, float(answer["now"]), users) for each in answer["runs"]]


def _parse_run(given: Mapping[str, Any], now: float, users: Users) -> Run:
    saved = given["checkpoint_time"]
    return Run(
        name=given["name"],
        step=given["step"],
        max_steps=_max_steps(str(given["config"])),
        loss=given["loss"],
        val_loss=given["val_loss"],
        lowest_val_loss=given["lowest_val_loss"],
        lowest_val_loss_step=given["lowest_val_loss_step"],
        checkpoint_step=given["checkpoint_step"],
        checkpoint_age_seconds=None if saved is None else max(0.0, now - saved),
        size_bytes=given["bytes"],
        is_done=given["is_done"],
        used_by=users.stacks.get(given["name"], []),
        tokens=given["tokens"],
        tokens_per_second=given["tokens_per_second"],
        world_size=given["world_size"],
        problem=given["problem"],
    )


def _max_steps(config: str) -> int | None:
    try:
        content = cast(Mapping[str, Any], yaml.safe_load(config) or {})
        return int(content["train"]["max_steps"])
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        return None


def as_table(runs: Sequence[Run]) -> str:
    """Return a table with a line for each run."""
    rows = columns([HEAD, *map(_row, runs)]) if runs else ["no run is on the volume"]
    return "\n".join(rows)


def compared(runs: Sequence[Run]) -> str:
    """Return a table that compares the last metrics of runs, with a line for each run."""
    return "\n".join(columns([COMPARED, *map(_numbers, runs)]))


def problems(runs: Sequence[Run]) -> list[str]:
    """Return a line for each run that could not be read completely."""
    return [
        f"run {printable(run.name)} could not be read in full, so what is shown of it may be "
        f"wrong: {printable(run.problem)}. Its files must be readable by the user of the pods"
        for run in runs
        if run.problem
    ]


def as_json(runs: Sequence[Run], users: Users, room: Room) -> str:
    """Return the runs as JSON, for programs."""
    found = {"runs": [asdict(run) for run in runs], "unseen": users.unknown, "volume": asdict(room)}
    return json.dumps(found, indent=2)


def size(count: float) -> str:
    """Return a text such as `812 B`, `5.3 MB` or `12.0 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _row(run: Run) -> tuple[str, ...]:
    saved = NOT_KNOWN
    if run.checkpoint_step is not None:
        age = span_of_seconds(run.checkpoint_age_seconds or 0)
        saved = f"step {run.checkpoint_step}, {age} ago"
    users = ", ".join(run.used_by) or NOT_KNOWN
    val_loss = _loss(run.val_loss)
    name = printable(run.name)
    return name, _step(run), _loss(run.loss), val_loss, saved, size(run.size_bytes), users


def _numbers(run: Run) -> tuple[str, ...]:
    lowest = _loss(run.lowest_val_loss)
    if run.lowest_val_loss_step is not None:
        lowest += f" (step {run.lowest_val_loss_step})"
    speed = NOT_KNOWN if run.tokens_per_second is None else f"{run.tokens_per_second:,.0f}"
    tokens = NOT_KNOWN if run.tokens is None else f"{run.tokens:,}"
    ranks = NOT_KNOWN if run.world_size is None else str(run.world_size)
    losses = (_loss(run.loss), _loss(run.val_loss), lowest)
    return run.name, _step(run), *losses, tokens, speed, ranks


def _step(run: Run) -> str:
    if run.step is None:
        return NOT_KNOWN
    return f"{run.step}/{run.max_steps}" if run.max_steps else str(run.step)


def _loss(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.4f}"
