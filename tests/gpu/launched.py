"""Checks of runs that the entrypoint starts, as in a pod.

They cover a kill -9 of a rank, a stop, and two ranks on one GPU.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from tests.gpu.place import NotHereError, Place, assert_close, losses
from tests.trainer.process_tree import name_of, processes_below, ranks_below
from trainer.config import RunConfig
from trainer.launch.exit_codes import ExitCode
from trainer.launch.spare import WAITS_NAME

CHECKOUT = Path(__file__).resolve().parents[2]
_LONGEST_WAIT_SECONDS = 120
_ENDLESS_STEPS = 1_000_000


@dataclass(frozen=True)
class _Pod:
    """The entrypoint of a run's only node, and what it has printed."""

    process: subprocess.Popen[bytes]
    log: Path
    run: RunConfig

    def records(self) -> list[dict[str, Any]]:
        """Return the records in the complete lines of metrics.jsonl."""
        file = self.run.run_dir / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().split("\n")[:-1]]

    def last_step(self) -> int:
        """Return the last recorded step; 0 if there is none yet."""
        file = self.run.run_dir / "metrics.jsonl"
        return max((r["step"] for r in self.records()), default=0) if file.exists() else 0

    def has_spare(self) -> bool:
        """Return whether a spare waits in the pod."""
        return WAITS_NAME in map(name_of, processes_below(self.process.pid))

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition. The check fails if the pod ends before it, or if it does not come
        in time.
        """
        deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
        while not condition():
            text = self.log.read_text()[-3000:]
            assert self.process.poll() is None, f"ended before {what}:\n{text}"
            assert time.monotonic() < deadline, f"no {what} in {_LONGEST_WAIT_SECONDS} s:\n{text}"
            time.sleep(0.01)

    def ended_with(self) -> int:
        """Wait for the end of the entrypoint, and return its exit code."""
        return self.process.wait(timeout=_LONGEST_WAIT_SECONDS)


@contextmanager
def _pod(place: Place, run: RunConfig, ranks: int = 1) -> Iterator[_Pod]:
    """Start a run's entrypoint with this many ranks, and yield its pod. The entrypoint ends
    afterwards.
    """
    run.run_dir.mkdir(parents=True, exist_ok=True)
    file, log = place.root / f"{run.run_name}.yaml", place.root / f"{run.run_name}.log"
    file.write_text(yaml.safe_dump(run.to_mapping()))
    topology = {
        "PET_NNODES": "1",
        "PET_NPROC_PER_NODE": str(ranks),
        "DISTTRAIN_READY_DIR": str(place.root / f"{run.run_name}-ready"),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainer", "entrypoint", "--config", str(file)],
            cwd=CHECKOUT,
            env={**os.environ, **topology},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield _Pod(process, log, run)
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        finally:
            process.kill()


def _long(place: Place, run_name: str, **changes: object) -> RunConfig:
    """Return the configuration of a run that ends only by a signal, unless `changes` shorten it."""
    steps = {"train__max_steps": _ENDLESS_STEPS, "train__decay_steps": _ENDLESS_STEPS}
    settings = {**steps, "eval__interval": 0, "checkpoint__interval": 20}
    fixed = {"train__deterministic": True, "train__dtype": "float32"}
    return place.config(run_name, **{**settings, **fixed, **changes})


def a_killed_rank_goes_on_bitwise(place: Place) -> str:
    """After kill -9 a spare replaces the rank, and the losses equal those without a kill."""
    with _pod(place, _long(place, "killed")) as pod:
        pod.wait_for("a checkpoint", lambda: pod.last_step() > 30)
        pod.wait_for("a spare", pod.has_spare)
        rank, *_ = ranks_below(pod.process.pid)
        killed_at = pod.last_step()
        os.kill(rank, signal.SIGKILL)
        pod.wait_for("a new start", lambda: "continuing after step" in pod.log.read_text())
        pod.wait_for("new steps", lambda: pod.last_step() > killed_at + 30)
        pod.process.terminate()
        assert pod.ended_with() == ExitCode.PREEMPTED, pod.log.read_text()[-3000:]
        found, last = {r["step"]: r["loss"] for r in pod.records()}, pod.last_step()
    whole = losses(place.train(_long(place, "undisturbed", train__max_steps=last)))
    assert [found[step] for step in range(1, last + 1)] == whole, "other losses"
    return f"{last} losses equal bit by bit, killed at step {killed_at}"


def a_stop_saves_and_frees_the_gpu(place: Place) -> str:
    """At SIGTERM the last step is saved, the exit code says so, and the GPU's memory is freed."""
    free = _free_bytes(place)
    with _pod(place, _long(place, "stopped")) as pod:
        pod.wait_for("a step", lambda: pod.last_step() > 5)
        held = free - _free_bytes(place)
        pod.process.terminate()
        assert pod.ended_with() == ExitCode.PREEMPTED, pod.log.read_text()[-3000:]
        saved = {path.name for path in (pod.run.run_dir / "checkpoints").glob("step-*")}
        last = pod.last_step()
    assert any(int(name.removeprefix("step-")) == last for name in saved), f"{last}: {saved}"
    left = free - _free_bytes(place)
    assert held > 0 or place.device != "cuda", "the run has held no memory of the GPU"
    assert left <= held / 10, f"{held:,} bytes were held and {left:,} still are"
    return f"saved step {last}; of {held / 2**20:.0f} MiB of the GPU {left / 2**20:.0f} are held"


def two_ranks_on_one_gpu_are_refused(place: Place) -> str:
    """Two ranks on one GPU are refused with advice.

    Otherwise NCCL would hang, or fail without a reason that helps.
    """
    _require_one_gpu(place)
    with _pod(place, _long(place, "two-by-nccl", train__backend="nccl"), ranks=2) as pod:
        code, text = pod.ended_with(), pod.log.read_text()
    assert code == ExitCode.FATAL, f"it ended with {code}:\n{text[-3000:]}"
    assert "several ranks use the same GPU" in text, text[-3000:]
    return "refused, with the name of the GPU"


def two_ranks_share_a_gpu_by_gloo(place: Place) -> str:
    """With the backend gloo, which the refusal advises, two ranks on one GPU train as one does."""
    shape = {"train__max_steps": 12, "train__parallel": "ddp", "train__backend": "gloo"}
    found: list[list[float]] = []
    for ranks in (1, 2):
        with _pod(place, _long(place, f"by-gloo-{ranks}", **shape), ranks) as pod:
            assert pod.ended_with() == ExitCode.DONE, pod.log.read_text()[-3000:]
            found.append(losses(pod.records()))
    worst = assert_close(found[0], found[1], 1e-4, "losses of two ranks")
    return f"losses of two ranks within {worst:.0e} of one's"


def _free_bytes(place: Place) -> int:
    """Return the bytes of the GPU's memory that no process uses; 0 if the check runs on the CPU."""
    if place.device != "cuda":
        return 0
    return torch.cuda.mem_get_info(0)[0]


def _require_one_gpu(place: Place) -> None:
    if place.device != "cuda" or torch.cuda.device_count() != 1:
        raise NotHereError("it needs exactly one GPU")


CHECKS = (
    a_killed_rank_goes_on_bitwise,
    a_stop_saves_and_frees_the_gpu,
    two_ranks_on_one_gpu_are_refused,
    two_ranks_share_a_gpu_by_gloo,
)
