"""Runs of the trainer in processes of its own, and what they measured."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainer.config import RunConfig, load_config
from trainer.cores import available_cores
from trainer.prepare import prepare

CHECKOUT = Path(__file__).resolve().parent.parent
_BESIDE = CHECKOUT.parent / "shared" / "data" / "tinyshakespeare.txt"


@dataclass(frozen=True)
class Bench:
    """Where the runs live and how many threads each process has."""

    root: Path
    threads: int = dataclasses.field(default_factory=available_cores)

    def config(self, run_name: str, overrides: Sequence[str] = ()) -> RunConfig:
        """A `shakespeare-char-cpu` run on prepared data; the text is $DISTTRAIN_DATASET's,
        the one beside the checkout, or the preset's download."""
        text = Path(os.environ.get("DISTTRAIN_DATASET", _BESIDE))
        file = [f"--dataset.file={text}"] if text.is_file() else []
        settings = [f"--run_name={run_name}", f"--data_root={self.root}", *file, *overrides]
        config = load_config("shakespeare-char-cpu", settings)
        if not config.dataset_dir.exists():
            prepare(config)
        return config

    def train(self, config: RunConfig, world_size: int = 1) -> list[dict[str, Any]]:
        """Run the trainer to its end on so many ranks; returns the records of metrics.jsonl."""
        return self._finish(config, self._start_ranks(config, world_size))

    def train_at_once(self, configs: Sequence[RunConfig]) -> list[list[dict[str, Any]]]:
        """The same for several runs side by side, where time is not what is measured."""
        started = [self._start_ranks(config, 1) for config in configs]
        return [self._finish(*run) for run in zip(configs, started, strict=True)]

    def _start_ranks(self, config: RunConfig, world_size: int) -> list[subprocess.Popen[bytes]]:
        file, port = self._write(config), _free_port()
        return [
            self._start(
                ["-m", "trainer", "train", "--config", str(file)],
                config.run_dir / f"rank-{rank}.log",
                {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(world_size),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
                },
            )
            for rank in range(world_size)
        ]

    def _finish(
        self, config: RunConfig, ranks: Sequence[subprocess.Popen[bytes]]
    ) -> list[dict[str, Any]]:
        codes = [process.wait() for process in ranks]
        if any(codes):
            raise RuntimeError(f"ranks ended with {codes}:\n{self.log(config)}")
        return _json_lines(config.run_dir / "metrics.jsonl")

    def log(self, config: RunConfig) -> str:
        """Everything that the first rank printed."""
        return (config.run_dir / "rank-0.log").read_text()

    def _write(self, config: RunConfig) -> Path:
        config.run_dir.mkdir(parents=True, exist_ok=True)
        file = config.run_dir / "bench.yaml"
        file.write_text(yaml.safe_dump(config.to_mapping()))
        return file

    def _start(
        self, arguments: list[str], log: Path, environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        threads = {"OMP_NUM_THREADS": str(self.threads)}
        with log.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=CHECKOUT,
                env={**os.environ, **threads, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
