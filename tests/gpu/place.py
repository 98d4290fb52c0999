"""The device and the scratch folder of a check, and small runs of the real trainer in them."""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._dynamo.utils import counters

from trainer.config import RunConfig
from trainer.data.prepare import prepare
from trainer.launch.stop_request import StopRequest
from trainer.launch.worker import set_up_torch
from trainer.parallel.device import DTYPES, Compute
from trainer.parallel.world import World
from trainer.train import train

_WORDS = ("to", "be", "or", "not", "that", "is", "the", "question", "suffer", "slings")


class NotHereError(Exception):
    """This machine lacks what the check needs. The check counts as not run, never as passed."""


class _NoSignals(StopRequest):
    """A stop request without signal handlers: signals stay with the program of the checks."""

    def install(self) -> None:
        pass


@dataclass(frozen=True)
class Place:
    """A device ("cuda" or "cpu") and a folder for everything that a check writes."""

    device: str
    root: Path

    def config(self, run_name: str, **changes: Any) -> RunConfig:
        """The configuration of a small run; `changes` are section__key=value.

        Its data set is prepared at the first use.
        """
        text = self.root / "words.txt"
        if not text.exists():
            draw = random.Random(0)
            words = (draw.choice(_WORDS) + draw.choice("       \n") for _ in range(20000))
            text.write_text("".join(words))
        mapping: dict[str, Any] = {
            "run_name": run_name,
            "data_root": str(self.root),
            "seed": 7,
            "dataset": {"name": "words", "file": str(text), "tokenizer": "char"},
            "model": {
                **{"n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 32},
                **{"dropout": 0.0, "bias": False},
            },
            "train": {
                **{"max_steps": 12, "global_batch_size": 10, "micro_batch_size": 3},
                **{"learning_rate": 1e-2, "min_lr": 1e-3, "warmup_steps": 3},
                **{"device": self.device, "compile": "off"},
            },
            "eval": {"interval": 0, "batch_size": 64},
            "checkpoint": {"interval": 0},
            "log": {"interval": 1},
        }
        if self.device == "cpu" and changes.get("train__dtype") == "float16":
            mapping["train"]["device"] = "auto"  # see the method `compute`
        for name, value in changes.items():
            section, _, key = name.partition("__")
            mapping[section][key] = value
        config = RunConfig.from_mapping(mapping)
        if not config.dataset_dir.exists():
            prepare(config)
        return config

    def compute(self, config: RunConfig, world: World | None = None) -> Compute:
        """Return what the trainer would choose to compute with; torch is set up for it as in a
        rank of `world`.

        The trainer refuses float16 on a CPU, because it is slow there. The arithmetic exists, so
        checks of it may run without a GPU.
        """
        if self.device == "cpu" and config.train.dtype == "float16":
            other = replace(config.train, dtype="float32", device="cpu")
            return replace(set_up_torch(other, World()), dtype=DTYPES["float16"])
        return set_up_torch(config.train, world or World())

    def train(
        self,
        config: RunConfig,
        world: World | None = None,
        on_first_step: Callable[[], None] = lambda: None,
    ) -> list[dict[str, Any]]:
        """Train in this process as a rank does, and return the records of metrics.jsonl."""
        compute = self.compute(config, world)
        train(config, world or World(), compute, _NoSignals(), on_first_step)
        lines = (config.run_dir / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def group_of_one(self, kind: str, config: RunConfig) -> AbstractContextManager[World]:
        """Return the world of one rank, with a process group unless `kind` is "alone"."""
        if kind == "alone":
            return nullcontext(World())
        return _Group(self, config)


class _Group(AbstractContextManager[World]):
    """A process group of only this process, so that NCCL, DDP and FSDP2 need only one GPU."""

    def __init__(self, place: Place, config: RunConfig):
        self._place, self._config = place, config

    def __enter__(self) -> World:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        world = World(grouped=True)
        world.connect(self._place.compute(self._config), self._config.train)
        return world

    def __exit__(self, *error: object) -> None:
        dist.destroy_process_group()
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            del os.environ[name]


def contexts() -> list[int]:
    """Return the GPUs on which this process has a context. The question itself makes no context."""
    has_context = torch._C._cuda_hasPrimaryContext  # pyright: ignore
    return [index for index in range(torch.cuda.device_count()) if has_context(index)]


def losses(records: list[dict[str, Any]]) -> list[float]:
    """Return the loss of every record; a loss that has overflowed counts as infinite."""
    return [float("inf") if r["loss"] is None else float(r["loss"]) for r in records]


def assert_close(one: list[float], other: list[float], tolerance: float, what: str) -> float:
    """Return the largest relative difference, which must not be more than `tolerance`."""
    assert len(one) == len(other), f"{what}: {len(one)} and {len(other)} losses"
    worst = max(abs(a - b) / abs(a) for a, b in zip(one, other, strict=True))
    assert worst <= tolerance, f"{what}: losses differ by {worst:.1e}: {one} and {other}"
    return worst


class CompiledGraphs:
    """Counts the graphs that torch.compile makes, and the places where it gives up."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop what was compiled, and count from 0."""
        torch.compiler.reset()
        counters.clear()

    def count(self) -> int:
        """Return how many graphs were made so far, by TorchDynamo's own counters."""
        stats: Mapping[str, int] = counters["stats"]
        return stats.get("unique_graphs", 0)

    def breaks(self) -> dict[str, int]:
        """Return the reasons why graphs were cut or not compiled, and how often each occurred."""
        return {str(reason): times for reason, times in counters["graph_break"].items()}
