"""The rows of the GPU's table. Each measures one thing, and can run alone (bench/gpu.py)."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.recovery import Pods, seconds_until_next_step
from bench.row import Row
from bench.runs import CHECKOUT, Bench
from trainer import compiled_code
from trainer.config import RunConfig, load_config
from trainer.data.prepare import prepare

GPT2_VOCABULARY = 50257
GPU_KILLS = 4
TURNS = 2
UPDATES, WARM_UP = 60, 10  # the first updates compile, and fill the allocator's cache


def gpt2_config(root: Path, run_name: str, overrides: Sequence[str] = ()) -> RunConfig:
    """The configuration of gpt2-124m with 4 micro-batches of 12 sequences in each update.

    The data set is random text; it is prepared here if it is missing.
    """
    text = root / "random.txt"
    if not text.exists():
        points = [i for i in range(0x100, 0x10000) if not 0xD800 <= i <= 0xDFFF]
        characters = [chr(point) for point in points[:GPT2_VOCABULARY]]
        draw = random.Random(0)
        text.write_text("".join(characters) + "".join(draw.choices(characters, k=2_000_000)))
    config = load_config(
        "gpt2-124m",
        [
            *(f"--run_name={run_name}", f"--data_root={root}", "--dataset.name=random"),
            *(f"--dataset.file={text}", "--dataset.tokenizer=char"),
            *("--train.global_batch_size=48", "--train.micro_batch_size=12"),
            *(f"--train.max_steps={UPDATES}", "--train.warmup_steps=10", "--train.device=cuda"),
            *("--eval.interval=0", "--eval.batch_size=12", "--checkpoint.interval=0"),
            *("--log.interval=10", *overrides),
        ],
    )
    if not config.dataset_dir.exists():
        prepare(config)
    return config


def trained(root: Path, name: str, *overrides: str) -> list[dict[str, Any]]:
    """Run `python -m trainer train` in a new process, and return the records after the warm-up."""
    config = gpt2_config(root, name, overrides)
    config.run_dir.mkdir(parents=True, exist_ok=True)
    file = config.run_dir / "bench.yaml"
    file.write_text(yaml.safe_dump(config.to_mapping()))
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "train", "--config", str(file)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    lines = (config.run_dir / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["step"] > WARM_UP]


def row_without_bar(what: str, measured: str) -> Row:
    """A row without a bar, which is only for information."""
    return Row(what, "-", measured, None)


def _figures(records: Sequence[dict[str, Any]]) -> str:
    speed = statistics.median(r["tokens_per_second"] for r in records)
    mfu = "n/a" if records[-1]["mfu"] is None else f"{_median_mfu(records):.1%}"
    memory = max(r["peak_memory_bytes"] for r in records) / 2**30
    return f"{speed:,.0f} tokens/s, MFU {mfu}, {memory:.1f} GiB at most"


def _median_mfu(records: Sequence[dict[str, Any]]) -> float:
    return statistics.median(r["mfu"] for r in records)


def _yardstick(root: Path, *switches: str) -> dict[str, Any]:
    """Measure the yardstick in a new process, so that it shares no memory and no compiled code."""
    config = gpt2_config(root, "yardstick")
    file = root / "yardstick.yaml"
    file.write_text(yaml.safe_dump(config.to_mapping()))
    return json.loads(_last_line("--yardstick", str(file), *switches))


def _last_line(*words: str, **environment: str) -> str:
    """The last line that `python -m bench.gpu WORDS` prints in a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu", *words],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"bench.gpu {words[0]} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout.strip().splitlines()[-1]


def run_yardstick(file: Path, compiled: bool, float32_loss: bool) -> None:
    """Print the figures of bench/nanogpt_like.py on this machine's GPU, as JSON."""
    import torch

    from bench import nanogpt_like
    from trainer.metrics.peak_flops import peak_flops
    from trainer.model.gpt import GPT

    config = load_config(str(file), [])
    loop = nanogpt_like.Loop(config, "cuda", compiled, float32_loss)
    seconds: list[float] = []
    for _ in range(UPDATES):
        begin = time.perf_counter()
        loop.step()  # returns a float, so the GPU has ended its work
        seconds.append(time.perf_counter() - begin)
    tokens = config.tokens_per_update
    speed = tokens / statistics.median(seconds[WARM_UP:])
    with torch.device("meta"):
        flops = GPT(config.model, GPT2_VOCABULARY).flops_per_token()
    peak = peak_flops(torch.cuda.get_device_name(0), torch.bfloat16)
    record = {
        "tokens_per_second": speed,
        "mfu": peak and speed * flops / peak,
        "peak_memory_bytes": torch.cuda.max_memory_allocated(),
    }
    print(json.dumps(record))


def throughput(root: Path) -> list[Row]:
    """The trainer and the yardsticks in turn, eager and compiled, each time in a new process."""
    loop = "nanoGPT-style loop"
    in_float32 = f"{loop} with its loss in float32, as ours has it"
    eager = _side_by_side(root, "eager", {loop: (), in_float32: ("--float32-loss",)})
    return eager + _side_by_side(root, "compiled", {loop: ("--compiled",)})


def _side_by_side(root: Path, word: str, yardsticks: dict[str, tuple[str, ...]]) -> list[Row]:
    """The rows of the yardsticks, and the rows of the trainer against each of them.

    `yardsticks` maps the name of each yardstick to its options.
    """
    ours, theirs = list[dict[str, Any]](), {name: list[dict[str, Any]]() for name in yardsticks}
    ratios = {name: list[float]() for name in yardsticks}
    for turn in range(TURNS):
        for name, switches in yardsticks.items():
            theirs[name].append(_yardstick(root, *switches))
        switch = "on" if word == "compiled" else "off"
        records = trained(root, f"ours-{word}-{turn}", f"--train.compile={switch}")
        ours += records
        speed = statistics.median(r["tokens_per_second"] for r in records)
        for name in yardsticks:
            ratios[name].append(speed / theirs[name][-1]["tokens_per_second"])
            print(f"{word}, turn {turn + 1}: {ratios[name][-1]:.3f}x the {name}", flush=True)
    rows = [
        row_without_bar(f"gpt2-124m, bfloat16, {name}, {word}", _figures(found))
        for name, found in theirs.items()
    ]
    for name, found in ratios.items():
        ratio = statistics.median(found)
        rows.append(
            Row(
                f"gpt2-124m, bfloat16, ours, {word}, against the {name}",
                ">= 1.00x",
                f"{_figures(ours)}; {ratio:.3f}x ({TURNS} turns: "
                f"{min(found):.3f} to {max(found):.3f})",
                ratio >= 1.0,
            )
        )
    return rows


def recompute(root: Path) -> list[Row]:
    """What recomputing blocks in the backward pass costs and saves, compiled."""
    on = ("--train.compile=on", "--train.activation_checkpointing=true")
    figures = _figures(trained(root, "recompute", *on))
    return [row_without_bar("gpt2-124m, compiled, blocks recomputed in the backward pass", figures)]


def tf32(root: Path) -> list[Row]:
    """Training in float32, whose matrix products use TF32."""
    figures = _figures(trained(root, "float32", "--train.dtype=float32", "--train.compile=off"))
    return [row_without_bar("gpt2-124m, float32 with TF32, eager", figures)]


def first_step(root: Path) -> list[Row]:
    """The time that compiling takes with an empty and with a filled cache of compiled code.

    The third row has an empty cache, but an earlier start has kept its code in the run's folder.
    """
    settings = ("--train.compile=on", "--train.keep_compiled=true")
    steps = ("--train.max_steps=2", "--train.warmup_steps=1")
    config = gpt2_config(root, "first-step", [*settings, *steps])
    file = root / "first-step.yaml"
    file.write_text(yaml.safe_dump(config.to_mapping()))
    kept = root / "kept"
    rows: list[Row] = []
    for state, cache in (
        ("empty cache", "one"),
        ("filled cache", "one"),
        ("empty cache, train.keep_compiled", "another"),
    ):
        shutil.rmtree(config.run_dir, ignore_errors=True)
        if cache == "another":
            shutil.copytree(kept, config.run_dir / compiled_code.FOLDER)
        seconds = float(_last_line("--first-step", str(file), "--cache", str(root / cache)))
        rows.append(
            row_without_bar(f"first step of gpt2-124m, compiled, {state}", f"{seconds:.1f} s")
        )
        print(f"{state}: {seconds:.1f} s", flush=True)
        if not kept.exists():
            shutil.copytree(config.run_dir / compiled_code.FOLDER, kept)
    megabytes = sum(made.stat().st_size for made in kept.iterdir()) / 1e6
    last = dataclasses.replace(rows[-1], what=f"{rows[-1].what} ({megabytes:.1f} MB)")
    return [*rows[:-1], last]


def run_first_step(file: Path, cache: str) -> None:
    """Print the seconds from the start of training to the end of its first step."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{cache}/inductor"
    os.environ["TRITON_CACHE_DIR"] = f"{cache}/triton"
    from trainer.launch.stop_request import StopRequest
    from trainer.launch.worker import set_up_torch
    from trainer.parallel.world import World
    from trainer.train import train

    config = load_config(str(file), [])
    compute, ended = set_up_torch(config.train, World()), list[float]()
    begin = time.perf_counter()
    train(config, World(), compute, StopRequest(), lambda: ended.append(time.perf_counter()))
    print(f"{ended[0] - begin:.2f}")


def saves(root: Path) -> list[Row]:
    """How long a save stops training, and how much slower the steps are meanwhile."""
    shape = ("--train.compile=on", "--log.interval=1")
    without = trained(root, "no-saves", *shape)
    saving = trained(root, "saves", *shape, "--checkpoint.interval=12")
    held = [r["checkpoint_seconds"] for r in saving if r["checkpoint_seconds"]]
    plain, loaded = (
        statistics.mean(r["step_seconds"] for r in records) for records in (without, saving)
    )
    return [
        row_without_bar(
            "gpt2-124m, compiled, a save (1.5 GB) every 9 steps",
            f"training held up {1e3 * statistics.median(held):.0f} ms by a save (most "
            f"{1e3 * max(held):.0f}); a step takes {1e3 * plain:.1f} ms without saves, "
            f"{1e3 * loaded:.1f} ms with them",
        )
    ]


def quality(root: Path) -> list[Row]:
    """The whole preset shakespeare-char, started as in a pod: its best loss and its time.

    The text is the file $DISTTRAIN_DATASET, or else the file beside the checkout, or else the
    download.
    """
    bench = Bench(root)
    config = bench.config("quality", ["--train.device=cuda"], preset="shakespeare-char")
    log, begin = root / "quality.log", time.monotonic()
    entrypoint = bench.start(
        ["-m", "trainer", "entrypoint", "--config", str(bench.write(config))],
        log,
        {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "1", "DISTTRAIN_READY_DIR": str(root / "ready")},
    )
    if code := entrypoint.wait():
        raise RuntimeError(f"the run ended with {code}:\n{log.read_text()[-3000:]}")
    seconds = time.monotonic() - begin
    records = bench.records(config)
    best = min((r["val_loss"], r["step"]) for r in records if r["val_loss"] is not None)
    return [
        Row(
            f"shakespeare-char, tiny Shakespeare, {records[-1]['step']:,} steps: best exact "
            "validation loss, and the time from the start of the process to its end",
            "<= 1.4697, <= 180 s",
            f"{best[0]:.4f} at step {best[1]:,}, {seconds:.0f} s",
            best[0] <= 1.4697 and seconds <= 180,
        )
    ]


def recovery(root: Path) -> list[Row]:
    """The time from a kill -9 to the next trained step, for the processes of one pod on one GPU."""
    settings = ["--train.compile=on", "--train.max_steps=1000000", "--train.max_restarts=1000"]
    settings += ["--checkpoint.interval=25", "--log.interval=1"]
    kinds: dict[str, Callable[[Pods], None]] = {
        "the rank": lambda pods: pods.kill_rank(0),
        "all processes of the pod": lambda pods: pods.kill_pod(0),
    }
    rows: list[Row] = []
    for number, (what, kill) in enumerate(kinds.items()):
        bench, draw = Bench(root / str(number)), random.Random(0)
        bench.root.mkdir()
        pods = Pods(bench, gpt2_config(bench.root, "recovery", settings), nodes=1)
        try:
            seconds = [seconds_until_next_step(pods, kill, draw) for _ in range(GPU_KILLS)]
        finally:
            pods.close()
        rows.append(
            row_without_bar(
                f"gpt2-124m, compiled: from kill -9 of {what} to the next trained step, "
                f"{GPU_KILLS} kills",
                f"{statistics.median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f}), "
                "with the cache of compiled code of the first start",
            )
        )
    return rows


def time_line(root: Path) -> list[Row]:
    """What the GPU does during a save, as torch's profiler sees it.

    It is measured with CUDA's default of 8 queues for all streams of a process, and with 32 queues,
    because two streams that share a queue wait for each other.
    """
    rows: list[Row] = []
    for queues in ("8", "32"):
        folder = root / queues
        folder.mkdir()
        line = _last_line("--time-line", str(folder), CUDA_DEVICE_MAX_CONNECTIONS=queues)
        what = f"time line of three saves, 200 M parameters, eager, {queues} queues"
        rows.append(row_without_bar(what, line))
        print(f"{queues} queues: {line}", flush=True)
    return rows


def run_time_line(folder: Path) -> None:
    """Print the time line of a profiled run in this process."""
    from tests.gpu.place import Place
    from tests.gpu.saving import profile_saves

    print(profile_saves(Place("cuda", folder)).describe())


ROWS: dict[str, Callable[[Path], list[Row]]] = {
    "throughput": throughput,
    "recompute": recompute,
    "tf32": tf32,
    "first-step": first_step,
    "saves": saves,
    "time-line": time_line,
    "quality": quality,
    "recovery": recovery,
}
