"""Runs the trainer in new processes, and returns what it measured."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainer.config import RunConfig, load_config
from trainer.data.prepare import prepare
from trainer.parallel.cores import available_cores

CHECKOUT = Path(__file__).resolve().parent.parent
_BESIDE = CHECKOUT.parent / "shared" / "data" / "tinyshakespeare.txt"


@dataclass(frozen=True)
class Place:
    """Where one rank runs.

    Args:
        wrapper: the first words of a command line that runs the rank's command.
        environment: further environment variables.
    """

    wrapper: Sequence[str] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Bench:
    """Runs the trainer; `root` is the folder of the runs, `threads` the threads of each process."""

    root: Path
    threads: int = dataclasses.field(default_factory=available_cores)

    def config(
        self,
        run_name: str,
        overrides: Sequence[str] = (),
        preset: str = "shakespeare-char-cpu",
    ) -> RunConfig:
        """The configuration of a run with a preset of Shakespeare; its data are prepared if needed.

        The text is the file $DISTTRAIN_DATASET, or else the file beside the checkout, or else the
        download.
        """
        text = Path(os.environ.get("DISTTRAIN_DATASET", _BESIDE))
        file = [f"--dataset.file={text}"] if text.is_file() else []
        settings = [f"--run_name={run_name}", f"--data_root={self.root}", *file, *overrides]
        config = load_config(preset, settings)
        if not config.dataset_dir.exists():
            prepare(config)
        return config

    def train(self, config: RunConfig, world_size: int = 1) -> list[dict[str, Any]]:
        """Run the trainer to its end on `world_size` ranks; return the records of metrics.jsonl."""
        return self._finish(config, self._start_ranks(config, world_size))

    def train_at_once(self, configs: Sequence[RunConfig]) -> list[list[dict[str, Any]]]:
        """Run several configurations in parallel, for rows that do not measure time."""
        started = [self._start_ranks(config, 1) for config in configs]
        return [self._finish(*run) for run in zip(configs, started, strict=True)]

    def _start_ranks(self, config: RunConfig, world_size: int) -> list[subprocess.Popen[bytes]]:
        arguments = ["-m", "trainer", "train", "--config", str(self.write(config))]
        return self._start_all(arguments, config.run_dir, world_size)

    def run_ranks(
        self,
        arguments: list[str],
        directory: Path,
        world_size: int,
        places: Sequence[Place] | None = None,
        while_they_run: Callable[[list[subprocess.Popen[bytes]], Path], None] | None = None,
    ) -> list[Path]:
        """Run a Python command on several ranks to its end; return the file with each one's output.

        Args:
            arguments: the arguments of Python.
            directory: the folder for the files with what the ranks print.
            world_size: how many ranks run.
            places: where each rank runs; None: all run in this machine's network.
            while_they_run: a function that is called once, with the ranks and the file with the
                first rank's output.
        """
        ranks = self._start_all(arguments, directory, world_size, places)
        logs = [directory / f"rank-{rank}.log" for rank in range(world_size)]
        try:
            if while_they_run is not None:
                while_they_run(ranks, logs[0])
            codes = [process.wait() for process in ranks]
        finally:
            for process in ranks:
                process.kill()
        if any(codes):
            texts = "\n".join(log.read_text() for log in logs)
            raise RuntimeError(f"ranks ended with {codes}:\n{texts}")
        return logs

    def _start_all(
        self,
        arguments: list[str],
        directory: Path,
        world_size: int,
        places: Sequence[Place] | None = None,
    ) -> list[subprocess.Popen[bytes]]:
        port, places = free_port(), places or [Place()] * world_size
        return [
            self.start(
                arguments,
                directory / f"rank-{rank}.log",
                {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(world_size),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
                    **place.environment,
                },
                place.wrapper,
            )
            for rank, place in enumerate(places)
        ]

    def _finish(
        self, config: RunConfig, ranks: Sequence[subprocess.Popen[bytes]]
    ) -> list[dict[str, Any]]:
        codes = [process.wait() for process in ranks]
        if any(codes):
            raise RuntimeError(f"ranks ended with {codes}:\n{self.log(config)}")
        return self.records(config)

    def records(self, config: RunConfig) -> list[dict[str, Any]]:
        """What a run has written into metrics.jsonl so far."""
        return _json_lines(config.run_dir / "metrics.jsonl")

    def log(self, config: RunConfig) -> str:
        """Everything that the first rank has printed."""
        return (config.run_dir / "rank-0.log").read_text()

    def write(self, config: RunConfig) -> Path:
        """Write the configuration into a file in the run's folder, and return its path."""
        config.run_dir.mkdir(parents=True, exist_ok=True)
        file = config.run_dir / "bench.yaml"
        file.write_text(yaml.safe_dump(config.to_mapping()))
        return file

    def start(
        self,
        arguments: list[str],
        log: Path,
        environment: dict[str, str],
        wrapper: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """Start Python with `arguments`; what it prints is appended to `log`.

        `wrapper` has the first words of a command line that runs the rest of that line.
        """
        threads = {"OMP_NUM_THREADS": str(self.threads)}
        with log.open("ab") as output:
            return subprocess.Popen(
                [*wrapper, sys.executable, *arguments],
                cwd=CHECKOUT,
                env={**os.environ, **threads, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def free_port() -> int:
    """A TCP port at which no program listens at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
