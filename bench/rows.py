"""The rows of the trainer's table; each is a function that measures one bar."""

from __future__ import annotations

import statistics
import time
from contextlib import nullcontext
from unittest import mock

import torch

from bench import nanogpt_like
from bench.checkpoint_rows import checkpoint_io, checkpoints
from bench.counting_world import CountingWorld
from bench.events import events
from bench.prepare import kills, speed
from bench.recovery import recovery
from bench.row import Row
from bench.runs import Bench
from bench.watch import watch
from trainer.config import RunConfig
from trainer.data.dataset import open_dataset
from trainer.data.gather import gather
from trainer.data.sample_order import SampleOrder
from trainer.evaluate import evaluate
from trainer.launch.stop_request import StopRequest
from trainer.model.allocator import keep_freed_memory
from trainer.model.gpt import GPT
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.train import train

_BLOCK, _PAIRS = 5, 30
_NOTHING_BESIDES = ["--eval.interval=0", "--checkpoint.interval=0", "--log.interval=20"]
SEEDS = (1337, 1338, 1339)


def throughput(bench: Bench) -> list[Row]:
    """The speed against the yardstick, with the matrix library that the trainer chooses here."""
    return [_against_yardstick(bench, ">= 1.10x", 1.10, "")]


def plain_linear(bench: Bench) -> list[Row]:
    """The speed with torch's own dense layers, as on CPUs for which oneDNN is not chosen (Intel's).

    This shows which part of the ratio does not come from the matrix library.
    """
    with mock.patch("trainer.model.linear.onednn_is_faster", return_value=False):
        return [_against_yardstick(bench, "-", None, ", plain linear layers")]


def _against_yardstick(bench: Bench, bar: str, least: float | None, how: str) -> Row:
    """Tokens per second of the trainer's loop against the yardstick, and the median of the ratios.

    Both run in this process and take turns, so that a busy machine slows both. The settings of
    trainer/model/allocator.py apply to the whole process, so they also speed up the yardstick.
    """
    torch.set_num_threads(bench.threads)
    keep_freed_memory()
    updates = (_PAIRS + 1) * _BLOCK + 1
    settings = [f"--train.max_steps={updates}", *_NOTHING_BESIDES, "--log.interval=100000"]
    config = bench.config("throughput", settings)
    loop = nanogpt_like.Loop(config)
    ours: list[float] = []
    theirs: list[float] = []
    begin, counted = 0.0, 0

    def on_update() -> None:
        nonlocal begin, counted
        counted += 1
        if counted % _BLOCK or len(ours) > _PAIRS:  # the last evaluation calls `sum` too
            return
        now = time.perf_counter()
        for _ in range(_BLOCK):
            loop.step()
        end = time.perf_counter()
        ours.append(now - begin)
        theirs.append(end - now)
        print(f"{len(ours)}: {theirs[-1] / ours[-1]:.2f}x", flush=True)
        begin = time.perf_counter()

    compute = choose_compute(config.train, 0)
    train(config, CountingWorld(on_update=on_update), compute, StopRequest(), lambda: None)
    # The first block holds the warm-up.
    ratios = sorted(slow / fast for slow, fast in zip(theirs[1:], ours[1:], strict=True))
    assert len(ratios) == _PAIRS
    ratio, quarter = statistics.median(ratios), len(ratios) // 4
    tokens = config.tokens_per_update * _BLOCK
    return Row(
        f"tokens/s on this CPU against a nanoGPT-style loop, {bench.threads} thread(s){how}",
        bar,
        f"{ratio:.2f}x (half of the {len(ratios)} pairs: {ratios[quarter]:.2f} to "
        f"{ratios[-1 - quarter]:.2f}); {tokens / statistics.median(ours[1:]):,.0f} against "
        f"{tokens / statistics.median(theirs[1:]):,.0f} tokens/s",
        None if least is None else ratio >= least,
    )


def prepare_rows(bench: Bench) -> list[Row]:
    """The rows of `prepare`: its speed on one core and on all cores, and its behavior if killed."""
    return [*speed(bench.root), *kills(bench.root)]


def assembly(bench: Bench) -> list[Row]:
    """The time to choose and gather a batch, including the new order of each epoch."""
    config, step_seconds = _short_run(bench, "assembly")
    dataset = open_dataset(config.dataset_dir)
    block, batch = config.model.block_size, config.train.global_batch_size
    order = SampleOrder(len(dataset.train), block, batch, config.seed)
    updates = 2 * order.windows_per_epoch // batch
    begin = time.perf_counter()
    for update in range(updates):
        gather(dataset.train, order.window_starts(update, range(batch)), block)
    seconds = (time.perf_counter() - begin) / updates
    share = seconds / step_seconds
    return [
        Row("batch assembly", "<= 1 % of a step", f"{share:.2%} ({1e6 * seconds:.0f} us)",
            share <= 0.01)
    ]  # fmt: skip


def evaluation(bench: Bench) -> list[Row]:
    """The share of a whole `shakespeare-char-cpu` run that its exact evaluations take."""
    config, step_seconds = _short_run(bench, "evaluation")
    torch.set_num_threads(bench.threads)
    keep_freed_memory()
    dataset = open_dataset(config.dataset_dir)
    model = GPT(config.model, dataset.tokenizer.vocab_size)
    seconds: list[float] = []
    for _ in range(5):
        begin = time.perf_counter()
        evaluate(
            model,
            dataset,
            config.eval.batch_size,
            World(),
            torch.device("cpu"),
            nullcontext,
            lambda: False,
        )
        seconds.append(time.perf_counter() - begin)
    preset = bench.config("preset")
    passes = preset.train.max_steps // preset.eval.interval
    spent = passes * statistics.median(seconds)
    share = spent / (spent + preset.train.max_steps * step_seconds)
    return [
        Row(
            f"evaluation in shakespeare-char-cpu, {passes} exact passes",
            "<= 5 % of wall time",
            f"{share:.1%} ({statistics.median(seconds):.2f} s each)",
            share <= 0.05,
        )
    ]


def ranks(bench: Bench) -> list[Row]:
    """Compare the losses of 1, 2 and 3 ranks with the same global batch, for 50 float32 steps."""
    rows: list[Row] = []
    for batch in (60, 64):
        series: list[list[float]] = []
        for world_size in (1, 2, 3):
            settings = [
                "--train.max_steps=50",
                "--train.warmup_steps=10",
                "--train.dtype=float32",
                f"--train.global_batch_size={batch}",
                "--eval.interval=0",
                "--checkpoint.interval=0",
                "--log.interval=1",
            ]
            config = bench.config(f"ranks-{batch}-{world_size}", settings)
            series.append([record["loss"] for record in bench.train(config, world_size)])
        assert all(len(losses) == 50 for losses in series)
        worst = max(
            abs(other - one) / one
            for others in series[1:]
            for one, other in zip(series[0], others, strict=True)
        )
        rows.append(
            Row(
                f"loss of 1, 2 and 3 ranks, global batch {batch}, 50 steps",
                "relative difference <= 1e-5",
                f"{worst:.1e}",
                worst <= 1e-5,
            )
        )
    return rows


def quality(bench: Bench) -> list[Row]:
    """The validation loss of the whole preset `shakespeare-char-cpu`, for three parallel seeds."""
    configs = [bench.config(f"quality-{seed}", [f"--seed={seed}"]) for seed in SEEDS]
    losses = [float(records[-1]["val_loss"]) for records in bench.train_at_once(configs)]
    mean = statistics.mean(losses)
    each = ", ".join(f"{loss:.4f}" for loss in losses)
    return [
        Row(
            "shakespeare-char-cpu, tiny Shakespeare: exact validation loss after 2,000 steps",
            "<= 1.88, mean of 3 seeds",
            f"{mean:.4f} ({each})",
            mean <= 1.88,
        )
    ]


def _short_run(bench: Bench, name: str) -> tuple[RunConfig, float]:
    """Train without evaluations and checkpoints; return the configuration and a step's seconds."""
    config = bench.config(name, ["--train.max_steps=120", *_NOTHING_BESIDES])
    records = bench.train(config)
    return config, statistics.median(r["step_seconds"] for r in records[1:])


ROWS = {
    "throughput": throughput,
    "plain-linear": plain_linear,
    "prepare": prepare_rows,
    "assembly": assembly,
    "evaluation": evaluation,
    "checkpoints": checkpoints,
    "checkpoint-io": checkpoint_io,
    "events": events,
    "watch": watch,
    "ranks": ranks,
    "quality": quality,
    "recovery": recovery,
}
