"""Finds the checkpoint from which a run continues.

A run starts at step 0 only if it has no checkpoint at all. If it has checkpoints and none of them
can be used, it ends with the reasons, unless `checkpoint.start_over` is set.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.checkpoint import retention, store
from trainer.checkpoint.layout import Layout
from trainer.checkpoint.run_identity import check_identity
from trainer.checkpoint.run_lock import RunLock
from trainer.config import RunConfig
from trainer.launch.exit_codes import FatalError, RetryableError
from trainer.mirror.push import mirror_folder
from trainer.mirror.restore import restore
from trainer.mirror.start_over import forget_start_over, note_start_over
from trainer.parallel.world import World
from trainer.run_folder import CHECKPOINTS_DIR, METRICS_FILE

STATE_FORMAT = 1
"""The format of state.json. A later version of the trainer has saved a higher number."""
_STATE_KEYS = {"identity", "data_sha256", "scaler", "world_size", "loss", "val_loss"}


@dataclass(frozen=True)
class Found:
    """The checkpoint to continue from, which is the same on all ranks.

    Args:
        step: The step of the checkpoint, or None if there is none.
        lowest_val_loss: The validation loss of the best checkpoint in nats per token. It is
            infinite if none was measured.
    """

    step: int | None
    lowest_val_loss: float


@dataclass(frozen=True)
class Wanted:
    """What a checkpoint has to fit.

    Args:
        shapes: The shapes of the model's parameters, by name.
        data_sha256: The fingerprint of the training tokens.
    """

    shapes: Mapping[str, Sequence[int]]
    data_sha256: str


@dataclass(frozen=True)
class _Problem:
    """Why a checkpoint cannot be used. All ranks have the same value.

    If `is_misfit`, its files are undamaged, but do not fit this run.
    """

    text: str
    is_misfit: bool


def find_checkpoint(
    config: RunConfig,
    world: World,
    wanted: Wanted,
    lock: RunLock,
    say: Callable[[str], None],
) -> Found:
    """Find the newest usable checkpoint. All ranks must call this function.

    Rank 0 takes `lock`. The ranks divide the files of a checkpoint among themselves and verify
    every byte, which may take longer than `train.timeout_seconds`. If no checkpoint here is usable,
    one is fetched from `checkpoint.mirror`, unless an undamaged one here does not fit this run. At
    the end rank 0 renames the checkpoints that are newer than the chosen one.

    Args:
        config: The settings of the run.
        world: The ranks of the run.
        wanted: What the checkpoint has to fit.
        lock: The right to write below the run's directory. Only rank 0 takes it.
        say: Prints a line. Only rank 0 prints it.

    Raises:
        FatalError: There are checkpoints and none can be used, the newest undamaged one is of a run
            with other settings or data, or this process may not read them.
        RetryableError: Another process writes this run, or the storage fails.
    """
    root = config.run_dir / CHECKPOINTS_DIR

    def open_root() -> list[int]:
        lock.acquire(say)
        root.mkdir(parents=True, exist_ok=True)
        store.remove_leftovers(root, say)
        return store.all_steps(root)

    def fetch() -> list[int]:
        try:
            fetched = restore(root, mirror_folder(config), say)
        except RetryableError as error:
            raise RetryableError(
                f"the volume holds no checkpoint that can be used, and {error}. The run does not "
                "start at step 0 while the mirror may hold one; unset checkpoint.mirror if it "
                "should"
            ) from error
        return [] if fetched is None else [fetched]

    skipped: list[_Problem] = []
    chosen = _first_usable(config, world, root, wanted, open_root, skipped, say)
    # The mirror has copies: if a checkpoint here does not fit, its copy there does not fit either.
    asks_mirror = config.checkpoint.mirror is not None and not any(p.is_misfit for p in skipped)
    if chosen is None and asks_mirror:
        chosen = _first_usable(config, world, root, wanted, fetch, skipped, say)

    def settle() -> float | None:
        _refuse_to_start_over(config, root, chosen, skipped)
        store.set_damaged_aside(root, chosen)
        if chosen is not None:
            forget_start_over(config.run_dir)
        elif store.set_aside_names(root):
            # The checkpoints have other names by now, so the mirror's process copies none of them.
            note_start_over(config.run_dir)
            _keep_metrics(config.run_dir)
        best = retention.best_step(root)
        return None if best is None else retention.val_loss(root, best)

    lowest = world.on_main_while_others_ask(settle)
    lowest = world.broadcast(math.inf if lowest is None else lowest)
    if chosen is None:
        say("no checkpoint: starting at step 0")
    return Found(chosen, lowest)


def _first_usable(
    config: RunConfig,
    world: World,
    root: Path,
    wanted: Wanted,
    look: Callable[[], list[int]],
    skipped: list[_Problem],
    say: Callable[[str], None],
) -> int | None:
    """Return the first step in rank 0's list of `look` that all ranks can use, or None.

    Each checkpoint that cannot be used is reported in a line, and added to `skipped`.
    """
    steps = world.on_main_while_others_ask(look) or []
    steps = [*steps, *[0] * (int(world.broadcast(len(steps))) - len(steps))]
    for step in [int(world.broadcast(step)) for step in steps]:
        problem = _agreed_problem(config, world, root, step, wanted)
        if problem is None:
            return step
        line = f"checkpoint {store.directory_of(root, step).name} skipped: {problem.text}"
        skipped.append(replace(problem, text=line))
        say(line)
    return None


def _refuse_to_start_over(
    config: RunConfig, root: Path, chosen: int | None, skipped: Sequence[_Problem]
) -> None:
    aside = [f"{name} was set aside by an earlier start" for name in store.set_aside_names(root)]
    if chosen is None and (skipped or aside) and not config.checkpoint.start_over:
        reasons = "; ".join([*(each.text for each in skipped), *aside])
        raise FatalError(
            f"run {config.run_name!r} has checkpoints in {root} and none of them can be used, so "
            f"it does not start again at step 0: {reasons}. Put a good one "
            "there, choose another run_name, or set checkpoint.start_over to true: then they are "
            "kept under other names and the run starts at step 0"
        )


def _keep_metrics(run_dir: Path) -> None:
    """Rename the metrics of a run that starts over, so that the new metrics do not replace them."""
    metrics = run_dir / METRICS_FILE
    if metrics.exists() and metrics.stat().st_size:
        names = [path.stem for path in run_dir.glob("metrics-before-*.jsonl")]
        taken = [int(digits) for name in names if (digits := name.rpartition("-")[2]).isdecimal()]
        number = max(taken, default=0) + 1
        metrics.rename(run_dir / f"metrics-before-{number}.jsonl")


def _agreed_problem(
    config: RunConfig, world: World, root: Path, step: int, wanted: Wanted
) -> _Problem | None:
    """Return the problem of the first rank that has found one in a checkpoint, or None.

    Raises:
        FatalError, RetryableError: A rank could not read its files. All ranks raise the error.
    """

    def look() -> str:
        name = store.directory_of(root, step).name
        try:
            with store.unreadable_is_no_damage(name):
                mine = set(store.files_of(root, step)[world.rank :: world.size])
                damage = store.problem(store.directory_of(root, step), mine.__contains__)
                misfit = None
                if damage is None and world.is_main:
                    misfit = _misfit(config, root, step, wanted)
        except FatalError as error:
            return json.dumps({"fatal": str(error)})
        except RetryableError as error:
            return json.dumps({"retry": str(error)})
        return json.dumps({"damage": damage or "", "misfit": misfit or ""})

    for answer in map(json.loads, world.together_while_asking(look)):
        if "fatal" in answer:
            raise FatalError(answer["fatal"])
        if "retry" in answer:
            raise RetryableError(answer["retry"])
        if reason := answer["damage"] or answer["misfit"]:
            return _Problem(reason, is_misfit=not answer["damage"])
    return None


def _misfit(config: RunConfig, root: Path, step: int, wanted: Wanted) -> str | None:
    """Say why a checkpoint with the right checksums cannot be loaded into this model, or None.

    Raises:
        FatalError: The checkpoint is of a run with other settings, or with other training tokens.
        OSError: A file cannot be read.
    """
    try:
        state = store.load_state(root, step)
        if (number := state.get("format", 1)) > STATE_FORMAT:
            return (
                f"it was saved by a later version of the trainer (format {number}, this one "
                f"reads up to {STATE_FORMAT})"
            )
        if missing := _STATE_KEYS - state.keys():
            return f"{store.STATE_FILE} lacks {', '.join(sorted(missing))}"
        has_same_tokens = state["data_sha256"] == wanted.data_sha256
        where = store.directory_of(root, step).name
        check_identity(state["identity"], config, where, has_same_tokens=has_same_tokens)
    except (ValueError, TypeError, AttributeError) as error:
        return f"{store.STATE_FILE} is damaged: {error!r}"
    try:
        layout = store.load_layout(root, step)
    except ValueError as error:
        return f"{store.LAYOUT_FILE}: {error}"
    reason = _other_tensors(root, step, layout, wanted.shapes)
    if has_same_tokens:
        return reason
    if reason is not None:
        return (
            f"{reason}; dataset {config.dataset.name} has changed since then (other training "
            "tokens), and the size of its vocabulary is one of the model's: put it back"
        )
    raise FatalError(
        f"dataset {config.dataset.name} has changed since run {config.run_name!r} was started "
        "(other training tokens). Put it back, or prepare it again under another name, which is "
        "dataset.name, or datasetName of a stack. To train with the new tokens, choose another "
        "run_name"
    )


def _other_tensors(
    root: Path, step: int, layout: Layout, shapes: Mapping[str, Sequence[int]]
) -> str | None:
    wanted = {f"model.{name}": tuple(shape) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        wanted[f"optimizer.{name}.step"] = ()
        wanted[f"optimizer.{name}.exp_avg"] = tuple(shape)
        wanted[f"optimizer.{name}.exp_avg_sq"] = tuple(shape)
    found = {name: saved.shape for name, saved in layout.items()}
    different = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
    if different:
        return f"it holds other tensors than this model and its optimiser: {different[0]}"
    listed = set(store.files_of(root, step))
    for saved in layout.values():
        for part in saved.parts:
            if part.file not in listed:
                return f"{store.MANIFEST_FILE} does not list {part.file}"
    return None
