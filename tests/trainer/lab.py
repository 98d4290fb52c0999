"""Runs small trainings with the real trainer in real processes (CPU, gloo, loopback)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from sandbox.dataset import training_text
from tests.ports import free_port
from tests.trainer.accidents import Accident
from tests.trainer.forked import Forked, Nursery, without_torchruns_variables
from trainer.checkpoint import layout, store
from trainer.checkpoint.durable import write_text
from trainer.config import RunConfig, load_config
from trainer.data.dataset import Dataset, open_dataset
from trainer.data.prepare import prepare
from trainer.launch.stop_request import StopRequest

CHECKOUT = Path(__file__).resolve().parents[2]
TRAINING_SECONDS = 600  # the longest run; on a slow machine some compile for minutes
WORDS = ["to", "be", "or", "not", "that", "is", "the", "question", "suffer", "slings"]


def text_of_words(count: int = 20000) -> str:
    """Return a text of `count` words, always the same, that a model can learn something from."""
    draw = random.Random(0)
    return "".join(draw.choice(WORDS) + draw.choice("       \n") for _ in range(count))


def prepare_training_text(preset: str, root: Path) -> tuple[Dataset, bool]:
    """Prepare the data set of `sandbox.dataset.training_text`.

    Returns:
        The data set, and whether its text is tiny Shakespeare. If there is neither a file nor a
        download of that, the text is plays of the same length.
    """
    text = training_text()
    run = load_config(
        preset,
        [
            f"--data_root={root}",
            f"--dataset.file={text.path}",
            f"--dataset.sha256={text.sha256}",
        ],
    )
    prepare(run)
    return open_dataset(run.dataset_dir), text.what == "tiny Shakespeare"


class NoSignals(StopRequest):
    """A stop request without signal handlers, for runs in the test's own process."""

    def install(self) -> None:
        pass


class Lab:
    """A data root with a prepared data set, and functions that run the trainer in it."""

    def __init__(self, root: Path, words: Path, nursery: Nursery):
        self.root = root
        self._nursery = nursery
        self._forked: set[int] = set()
        self._words = words
        self._processes: list[subprocess.Popen[str] | Forked] = []

    def mapping(self, **changes: Any) -> dict[str, Any]:
        """Return the configuration of a tiny run as a mapping; `changes` are section__key=value."""
        mapping: dict[str, Any] = {
            "run_name": "tiny",
            "data_root": str(self.root),
            "seed": 7,
            "dataset": {"name": "words", "file": str(self._words), "tokenizer": "char"},
            "model": {
                "n_layer": 2,
                "n_head": 2,
                "n_embd": 16,
                "block_size": 16,
                "dropout": 0.0,
                "bias": True,
            },
            "train": {
                "max_steps": 20,
                "global_batch_size": 12,
                "micro_batch_size": 3,
                "learning_rate": 1e-2,
                "min_lr": 1e-3,
                "warmup_steps": 5,
                "device": "cpu",
                # A lost rank is missed at once, as its connections end. These limits are for ranks
                # that say nothing. A busy machine must not be taken for such a rank.
                "timeout_seconds": 60,
                "start_timeout_seconds": 60,
                "rendezvous_timeout_seconds": 60,
            },
            "eval": {"interval": 0, "batch_size": 256},
            "checkpoint": {"interval": 0},
            "log": {"interval": 1},
        }
        for name, value in changes.items():
            section, _, key = name.partition("__")
            if key:
                mapping[section][key] = value
            else:
                mapping[section] = value
        return mapping

    def config(self, **changes: Any) -> RunConfig:
        """Return the configuration of a tiny run, and prepare its data set if there is none."""
        config = RunConfig.from_mapping(self.mapping(**changes))
        if not config.dataset_dir.exists():
            prepare(config)
        return config

    def config_file(self, config: RunConfig) -> Path:
        """Write the configuration to a file, and return its path."""
        path = self.root / f"{config.run_name}-{config.train.max_steps}.yaml"
        write_text(path, yaml.safe_dump(config.to_mapping()))  # other processes may be reading it
        return path

    def start(
        self,
        command: str,
        config: RunConfig,
        log: Path,
        environment: Mapping[str, str],
        largest_file_bytes: int | None = None,
        wrapper: Sequence[str] = (),
    ) -> subprocess.Popen[str]:
        """Start a trainer command in a session of its own. It ends with the test at the latest.

        `wrapper` has the first words of a command line that runs the rest of that line.
        """
        clean = without_torchruns_variables(os.environ)
        defaults = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loopback()}
        launcher = [*wrapper, sys.executable]
        if largest_file_bytes is not None:
            limit = f'ulimit -f {largest_file_bytes // 1024}; exec "$0" "$@"'
            launcher = ["bash", "-c", limit, sys.executable]
        with log.open("a") as output:
            process = subprocess.Popen(
                [*launcher, "-m", "trainer", command, "--config", self.config_file(config)],
                cwd=CHECKOUT,
                env={**clean, **defaults, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def start_ranks(
        self, config: RunConfig, world_size: int, largest_file_bytes: int | None = None
    ) -> list[subprocess.Popen[str]]:
        """Start all ranks of a run without torchrun, with the variables that torchrun sets."""
        port = free_port()
        return [
            self.start(
                "train",
                config,
                self.rank_log(config, rank),
                rank_environment(rank, world_size, port),
                largest_file_bytes,
            )
            for rank in range(world_size)
        ]

    def fork_ranks(
        self,
        config: RunConfig,
        world_size: int,
        slow_disk_seconds: float = 0.0,
        stop_in_evaluation: int = 0,
        slow_read_seconds: float = 0.0,
        accidents: Sequence[Accident] = (),
    ) -> list[int]:
        """Start all ranks by forks, which takes milliseconds instead of seconds; return the PIDs.

        See `Nursery.start` for the options. Only the last rank gets the signal in an evaluation.
        """
        port = free_port()
        return [
            self.fork_rank(
                config,
                rank,
                rank_environment(rank, world_size, port),
                slow_disk_seconds,
                stop_in_evaluation if rank == world_size - 1 else 0,
                slow_read_seconds,
                accidents,
            )
            for rank in range(world_size)
        ]

    def fork_rank(
        self,
        config: RunConfig,
        rank: int,
        environment: Mapping[str, str],
        slow_disk_seconds: float = 0.0,
        stop_in_evaluation: int = 0,
        slow_read_seconds: float = 0.0,
        accidents: Sequence[Accident] = (),
    ) -> int:
        """Start only one rank by a fork, and return its PID."""
        pid = self._nursery.start(
            ["train", "--config", str(self.config_file(config))],
            environment,
            self.rank_log(config, rank),
            slow_disk_seconds,
            stop_in_evaluation,
            slow_read_seconds,
            accidents,
        )
        self._forked.add(pid)
        return pid

    def ended(self, pids: Sequence[int], seconds: float = 120) -> list[int]:
        """Return the exit codes of forked processes. The test fails if one does not end in time."""
        codes = [self._nursery.wait(pid, seconds) for pid in pids]
        assert None not in codes, f"exit codes {codes} after {seconds} s\n{self.logs()}"
        self._forked.difference_update(pids)
        return [code for code in codes if code is not None]

    def rank_log(self, config: RunConfig, rank: int) -> Path:
        return self.root / f"{config.run_name}-rank-{rank}.log"

    def train(self, config: RunConfig, world_size: int, expect: int = 0) -> None:
        """Run all ranks to their end. The test fails unless all end with the status `expect`."""
        self.train_side_by_side((config, world_size), expect=expect)

    def train_side_by_side(self, *runs: tuple[RunConfig, int], expect: int = 0) -> None:
        """Run several runs of different names to their end at the same time; see `train`."""
        pids = [pid for run in runs for pid in self.fork_ranks(*run)]
        codes = self.ended(pids, TRAINING_SECONDS)
        assert codes == [expect] * len(pids), self.logs()

    def start_entrypoint(
        self,
        config: RunConfig,
        node: int,
        nnodes: int,
        local_ranks: int,
        port: int,
        slow_disk_seconds: float = 0.0,
        environment: Mapping[str, str] | None = None,
        accidents: Sequence[Accident] = (),
    ) -> Forked:
        """Start the entrypoint of a pod by a fork; it also forks its ranks."""
        pid = self._nursery.start(
            ["entrypoint", "--config", str(self.config_file(config))],
            {
                "GLOO_SOCKET_IFNAME": loopback(),
                **self._pod_environment(node, nnodes, local_ranks, port),
                **(environment or {}),
            },
            self.node_log(node),
            slow_disk_seconds,
            accidents=accidents,
        )
        self._processes.append(process := Forked(self._nursery, pid))
        return process

    def execute_entrypoint(
        self,
        config: RunConfig,
        node: int,
        nnodes: int,
        local_ranks: int,
        port: int,
        environment: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
    ) -> subprocess.Popen[str]:
        """Start the entrypoint as a pod does: it and its ranks execute Python anew."""
        environment = {
            **self._pod_environment(node, nnodes, local_ranks, port),
            **(environment or {}),
        }
        log = self.node_log(node)
        return self.start("entrypoint", config, log, environment, wrapper=wrapper)

    def _pod_environment(
        self, node: int, nnodes: int, local_ranks: int, port: int
    ) -> dict[str, str]:
        return {
            "PET_NNODES": str(nnodes),
            "PET_NPROC_PER_NODE": str(local_ranks),
            "PET_MASTER_ADDR": "localhost",
            "PET_MASTER_PORT": str(port),
            "POD_NAME": f"train-multipod-{node}",
            "DISTTRAIN_READY_DIR": str(self.ready_dir(node)),
        }

    def node_log(self, node: int) -> Path:
        return self.root / f"node-{node}.log"

    def ready_dir(self, node: int) -> Path:
        return self.root / f"status-{node}"

    def logs(self) -> str:
        """Return the content of all logs, for the message of a test that fails."""
        return "\n".join(f"== {p.name}\n{p.read_text()}" for p in sorted(self.root.glob("*.log")))

    def end_all(self) -> None:
        """Kill all processes that still run, and wait for their ends."""
        for pid in self._forked:
            os.kill(pid, signal.SIGKILL)
        self.ended(list(self._forked))
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait(60)


def rank_environment(rank: int, world_size: int, port: int) -> dict[str, str]:
    """Return the environment variables that torchrun sets for a rank."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": loopback(),
    }


def loopback() -> str:
    """Return the name of the loopback interface."""
    return "lo0" if sys.platform == "darwin" else "lo"


def records(config: RunConfig) -> list[dict[str, Any]]:
    """Return the records in the complete lines of `metrics.jsonl`."""
    path = config.run_dir / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def losses(config: RunConfig) -> list[tuple[int, float, float]]:
    """Return step, loss and gradient norm of every record, which are equal in equal runs."""
    found = records(config)
    assert found, f"the run {config.run_name} has no records"  # two such runs would seem equal
    return [(r["step"], r["loss"], r["grad_norm"]) for r in found]


def last_step(config: RunConfig) -> int:
    """Return the step of the last record; 0 if there is no record yet."""
    found = records(config)
    return int(found[-1]["step"]) if found else 0


def checkpoints(config: RunConfig) -> Path:
    return config.run_dir / "checkpoints"


def newest(config: RunConfig) -> int:
    """Return the step of the newest checkpoint, or 0. The test fails if a checkpoint is damaged."""
    return store.latest_verified(checkpoints(config), lambda line: pytest.fail(line)) or 0


def saved_tensors(config: RunConfig, step: int | None = None) -> dict[str, torch.Tensor]:
    """Return all tensors, by name, of the checkpoint of `step`, or of the newest one."""
    root = checkpoints(config)
    newest = store.latest_verified(root, lambda line: pytest.fail(line))
    step = newest if step is None else step
    assert step is not None
    directory, found = store.directory_of(root, step), store.load_layout(root, step)
    # The tensors are copied, because they are mapped pages of files that may change.
    return {name: layout.read_whole(directory, found, name).clone() for name in found}


def change_state(run: RunConfig, step: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change state.json of a checkpoint, and adapt its manifest."""
    directory = store.directory_of(checkpoints(run), step)
    state = store.load_state(checkpoints(run), step)
    change(state)
    (directory / "state.json").write_text(json.dumps(state))
    manifest = json.loads((directory / "manifest.json").read_text())
    path = directory / "state.json"
    manifest["files"]["state.json"] = {
        "bytes": path.stat().st_size,
        "sha256": store.sha256_of(path),
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))


def assert_bitwise_equal(one: RunConfig, other: RunConfig) -> None:
    """Assert that weights, optimizer state and every recorded loss of two runs are equal."""
    assert losses(one) == losses(other)
    left, right = saved_tensors(one), saved_tensors(other)
    assert left.keys() == right.keys()
    different = [name for name, tensor in left.items() if not torch.equal(tensor, right[name])]
    assert not different


def wait_for(
    what: str,
    condition: Callable[[], bool],
    seconds: float,
    lab: Lab,
    pause_seconds: float = 0.05,
) -> None:
    """Wait until the condition holds. The test fails with all logs if it does not within
    `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:g} s for: {what}\n{lab.logs()}")
        time.sleep(pause_seconds)
