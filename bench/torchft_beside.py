"""Compares torchft 0.2.0 with a run of ours: `python -m bench.torchft_beside`.

Three ranks on this machine's processor train the same model. One of them is killed (kill -9)
repeatedly, and started again at once. torchft goes on with two ranks meanwhile. Our trainer starts
all three again from the last checkpoint. The table goes to docs/benchmarks.md, which says what can
be compared and what cannot. torchft comes from the package index into a virtualenv of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.other_venv import ensure_other_venv
from bench.recovery import Pods, seconds_until_next_step
from bench.row import Row
from bench.runs import CHECKOUT, Bench
from bench.table import publish
from bench.torchft_rank import REPLICAS

HEADING = "## torchft beside it"
PACKAGE = "torchft==0.2.0"
# Options of torchft's lighthouse: how long it waits for a rank that has taken part, and after which
# silence it no longer waits for it. The first pair has the value of torchft's README and the
# default, the second pair is for one machine with all ranks.
TIMES_MS = {"as in its README": (10_000, 5_000), "set for one machine": (1_000, 1_000)}
LONGEST_SECONDS = 300.0
PAUSE_SECONDS = 0.01
SETTINGS = [
    "--train.max_steps=10000000",
    "--train.max_restarts=1000",
    "--train.global_batch_size=12",
    "--eval.interval=0",
    "--checkpoint.interval=25",
    "--log.interval=1",
]


class Replicas:
    """torchft's lighthouse and three ranks; a rank that is killed is started again."""

    def __init__(self, bench: Bench, python: Path, times_ms: tuple[int, int]) -> None:
        self.bench, self.python = bench, python
        self.config = bench.write(bench.config("torchft", SETTINGS))
        words = ["-m", "bench.torchft_rank", "lighthouse", *map(str, times_ms)]
        with (bench.root / "torchft-lighthouse.log").open("ab") as log:
            self.lighthouse = subprocess.Popen(
                [python, *words], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.lighthouse.stdout is not None
        self.address = self.lighthouse.stdout.readline().strip()
        self.ranks = [self.start(number) for number in range(REPLICAS)]

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Start one rank."""
        words = ["rank", str(number), str(self.config), str(self.steps_file(number))]
        variables = {"TORCHFT_LIGHTHOUSE": self.address, "OMP_NUM_THREADS": "1"}
        with (self.bench.root / f"torchft-{number}.log").open("ab") as log:
            return subprocess.Popen(
                [self.python, "-m", "bench.torchft_rank", *words],
                cwd=CHECKOUT,
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
            )

    def steps_file(self, number: int) -> Path:
        """The file in which a rank notes its steps."""
        return self.bench.root / f"torchft-{number}.jsonl"

    def steps(self, number: int) -> list[dict[str, Any]]:
        """The last 2,000 steps that a rank has noted."""
        file = self.steps_file(number)
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines[-2000:]]

    def kill(self, number: int) -> tuple[float, float]:
        """Kill a rank; return the seconds to the others' next step, and to the next step of all."""
        other = (number + 1) % REPLICAS
        self.ranks[number].kill()
        at = time.time()
        self.ranks[number].wait()
        self.ranks[number] = self.start(number)
        pid = self.ranks[number].pid

        def all_again() -> float:
            return next(
                (
                    step["unix_time"] - at
                    for step in self.steps(number)
                    if step["pid"] == pid and step["ranks"] == REPLICAS
                ),
                0.0,
            )

        whole = self.wait(all_again)
        # A step that all ranks had computed before the kill still counts as one of all ranks.
        fewer = [
            step["unix_time"] - at
            for step in self.steps(other)
            if step["unix_time"] > at and step["ranks"] < REPLICAS
        ]
        return min([*fewer, whole]), whole

    def train(self) -> bool:
        """Whether all ranks take part in the newest steps."""
        newest = [self.steps(number)[-1:] for number in range(REPLICAS)]
        return all(steps and steps[0]["ranks"] == REPLICAS for steps in newest)

    def wait(self, ask: Callable[[], Any]) -> Any:
        """Call `ask` until it returns a true value, and return that.

        Raises:
            RuntimeError: there was none for `LONGEST_SECONDS`; the text has the ends of the logs.
        """
        end = time.monotonic() + LONGEST_SECONDS
        while not (answer := ask()):
            if time.monotonic() > end:
                logs = sorted(self.bench.root.glob("torchft-*.log"))
                raise RuntimeError("\n".join(log.read_text()[-3000:] for log in logs))
            time.sleep(PAUSE_SECONDS)
        return answer

    def close(self) -> None:
        """Kill all ranks and the lighthouse."""
        for process in (*self.ranks, self.lighthouse):
            process.kill()
            process.wait()


def of_torchft(bench: Bench, python: Path, how: str, kills: int) -> list[Row]:
    """The rows of torchft with the pair of times that `how` names."""
    replicas, draw = Replicas(bench, python, TIMES_MS[how]), random.Random(0)
    found = list[tuple[float, float]]()
    try:
        for _ in range(kills):
            replicas.wait(replicas.train)
            time.sleep(draw.uniform(0, 2))
            found.append(replicas.kill(draw.randrange(REPLICAS)))
            print(f"torchft {how}: {found[-1][0]:.2f} s, {found[-1][1]:.2f} s", flush=True)
    finally:
        replicas.close()
    join, heartbeat = TIMES_MS[how]
    name = f"torchft 0.2.0, {how} (it waits {join} ms for ranks, {heartbeat} ms for a sign of life)"
    start = f"{name}: from kill -9 of one of {REPLICAS} ranks, {kills} kills"
    return [
        Row(f"{start}, to the next step of the others", "-", spread([f for f, _ in found]), None),
        Row(f"{start}, to the next step of all", "-", spread([w for _, w in found]), None),
    ]


def of_ours(bench: Bench, kills: int) -> Row:
    """The row of our trainer, with three pods of one rank each."""
    pods, draw = Pods(bench, bench.config("ours", SETTINGS), REPLICAS), random.Random(0)
    try:

        def kill(pods: Pods) -> None:
            pods.kill_rank(draw.randrange(REPLICAS))

        found = [seconds_until_next_step(pods, kill, draw) for _ in range(kills)]
    finally:
        pods.close()
    what = f"ours: from kill -9 of one of {REPLICAS} ranks, {kills} kills, to the next step of all"
    return Row(f"{what}, from the last checkpoint", "-", spread(found), None)


def spread(seconds: list[float]) -> str:
    """Percentiles and extremes as text."""
    p50, p95 = np.percentile(seconds, (50, 95))
    return f"p50 {p50:.1f} s, p95 {p95:.1f} s ({min(seconds):.1f} to {max(seconds):.1f})"


def main() -> int:
    """Measure all rows, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.torchft_beside", description=__doc__)
    parser.add_argument(
        "--kills",
        type=int,
        default=10,
        help="number of kills for each row (default: %(default)s)",
    )
    options = parser.parse_args()
    python, load = ensure_other_venv("torchft", PACKAGE) / "python", os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        ours = Path(folder) / "ours"
        ours.mkdir()
        rows = [of_ours(Bench(ours, threads=1), options.kills)]
        for number, how in enumerate(TIMES_MS):
            root = Path(folder) / str(number)
            root.mkdir()
            rows += of_torchft(Bench(root, threads=1), python, how, options.kills)
    for row in rows:
        print(f"{row.what}: {row.measured}")
    publish(HEADING, "torchft", rows, load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
