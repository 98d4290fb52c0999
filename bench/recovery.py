"""Measures how long a run stops after a kill -9 of a rank, of a pod, or of the pod with node 0."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from bench.row import Row
from bench.runs import Bench, free_port
from tests.trainer.process_tree import name_of, processes_below, ranks_below
from trainer.config import RunConfig
from trainer.launch.spare import WAITS_NAME

KILLS = int(os.environ.get("K", "10"))
_NODES = 2
_POLL_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 300.0
_BAR_SECONDS = 5.0


class Pods:
    """The entrypoints of a run of several nodes, with the starts and ends that Kubernetes does."""

    def __init__(self, bench: Bench, config: RunConfig, nodes: int = _NODES):
        """Start the entrypoint of each node."""
        self._bench, self._config, self._port = bench, config, free_port()
        self._file, self.nodes = bench.write(config), nodes
        self._pods = [self._start(node) for node in range(nodes)]

    def _start(self, node: int) -> subprocess.Popen[bytes]:
        return self._bench.start(
            ["-m", "trainer", "entrypoint", "--config", str(self._file)],
            self.log(node),
            {
                "PET_NNODES": str(self.nodes),
                "PET_NPROC_PER_NODE": "1",
                "PET_MASTER_ADDR": "localhost",
                "PET_MASTER_PORT": str(self._port),
                "POD_NAME": f"pod-{node}",
                "DISTTRAIN_READY_DIR": str(self._bench.root / f"ready-{node}"),
                "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
            },
        )

    def log(self, node: int) -> Path:
        """The file with what a pod and its rank have printed."""
        return self._bench.root / f"pod-{node}.log"

    def rounds(self) -> int:
        """How often the ranks were started."""
        return self.log(0).read_text().count("] round ") - self.log(0).read_text().count(" is lost")

    def steps(self) -> list[tuple[int, float]]:
        """Every recorded step, and the Unix time in seconds at which it was trained."""
        path = self._config.run_dir / "metrics.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().split("\n")[:-1]
        return [(r["step"], r["unix_time"]) for r in map(json.loads, lines)]

    def has_saved(self, steps: int) -> bool:
        """Whether there is a checkpoint of `steps` steps or more."""
        found = (self._config.run_dir / "checkpoints").glob("step-*")
        return any(int(path.name.removeprefix("step-")) >= steps for path in found)

    def kill_rank(self, node: int) -> None:
        """Kill only the training process; the pod starts it again."""
        for pid in ranks_below(self._pods[node].pid):
            os.kill(pid, signal.SIGKILL)

    def kill_pod(self, node: int) -> None:
        """Kill all processes of the pod, as the end of a container does, and start a new pod."""
        ranks = processes_below(self._pods[node].pid)[1:]
        self._pods[node].kill()
        for pid in ranks:
            with suppress(ProcessLookupError):  # the rank may have ended with its parent
                os.kill(pid, signal.SIGKILL)
        self._pods[node].wait()
        self._pods[node] = self._start(node)

    def have_spares(self) -> bool:
        """Whether in each pod a process waits to become a rank (trainer/launch/spare.py)."""
        return all(WAITS_NAME in map(name_of, processes_below(pod.pid)) for pod in self._pods)

    def close(self) -> None:
        """Kill all processes of all pods."""
        for pod in self._pods:
            for pid in processes_below(pod.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            pod.wait()


def recovery(bench: Bench) -> list[Row]:
    """The rows of two pods with one rank each, which are killed repeatedly at random moments."""
    settings = [
        "--train.max_steps=10000000",
        "--train.max_restarts=1000",
        "--eval.interval=0",
        "--checkpoint.interval=25",
        "--log.interval=1",
    ]
    draw = random.Random(0)
    kinds: dict[str, Callable[[Pods], None]] = {
        "a rank": lambda pods: pods.kill_rank(1),
        "a pod": lambda pods: pods.kill_pod(1),
        "the pod with node 0": lambda pods: pods.kill_pod(0),
    }
    rows: list[Row] = []
    for number, (what, kill) in enumerate(kinds.items()):
        of_kind = Bench(bench.root / str(number), max(1, bench.threads // _NODES))
        pods = Pods(of_kind, of_kind.config(f"recovery-{number}", settings))
        try:
            seconds = [seconds_until_next_step(pods, kill, draw) for _ in range(KILLS)]
        finally:
            pods.close()
        p50, p95 = np.percentile(seconds, (50, 95))
        rows.append(
            Row(
                f"from kill -9 of {what} to the next trained step, {_NODES} pods of 1 rank, "
                f"{KILLS} kills",
                f"p95 <= {_BAR_SECONDS:g} s",
                f"p50 {p50:.1f} s, p95 {p95:.1f} s ({min(seconds):.1f} to {max(seconds):.1f})",
                bool(p95 <= _BAR_SECONDS),
            )
        )
    return rows


def seconds_until_next_step(pods: Pods, kill: Callable[[Pods], None], draw: random.Random) -> float:
    """Seconds from a kill to the next step. The kill comes at a random moment after a new save."""
    before = pods.steps()
    reached = before[-1][0] if before else 0
    _wait("the spares", pods.have_spares, pods)
    _wait("a newer checkpoint", lambda: pods.has_saved(reached + 1), pods)
    time.sleep(draw.uniform(0, 1))  # anywhere between two checkpoints, and in saves
    rounds, killed_at = pods.rounds(), time.time()
    kill(pods)
    _wait("the next round", lambda: pods.rounds() > rounds, pods)
    started_at = time.time()  # no rank of an earlier round writes a record after this
    _wait("the next step", lambda: any(at > started_at for _, at in pods.steps()[-1:]), pods)
    trained_at = next(at for _, at in pods.steps() if at > started_at)
    print(f"{trained_at - killed_at:.2f} s", flush=True)
    return trained_at - killed_at


def _wait(what: str, condition: Callable[[], bool], pods: Pods) -> None:
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(pods.log(node).read_text()[-3000:] for node in range(pods.nodes))
            raise RuntimeError(f"waited {_LONGEST_WAIT_SECONDS:g} s for {what}\n{logs}")
        time.sleep(_POLL_SECONDS)
