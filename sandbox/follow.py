"""Follows a run by its metrics file and its done marker, and shows its progress in one line."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from sandbox.say import say

POLL_SECONDS = 0.5


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    """All complete lines of the run's metrics file."""
    path = run_dir / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [cast(dict[str, Any], json.loads(line)) for line in lines]


def train_points(run_dir: Path) -> list[dict[str, Any]]:
    """The metric lines that hold a training loss."""
    return [point for point in metrics(run_dir) if "loss" in point]


def until_done(run_dir: Path, limit_seconds: float) -> Iterator[dict[str, Any]]:
    """Yield each new training point until the done marker appears.

    Args:
        run_dir: `<data root>/runs/<run name>` as seen on the host.
        limit_seconds: the longest time that may pass between two new points.

    Raises:
        TimeoutError: there was no new point for `limit_seconds`.
    """
    seen = 0
    deadline = time.monotonic() + limit_seconds
    while True:
        done = (run_dir / "done.json").exists()
        points = train_points(run_dir)
        if len(points) > seen:
            yield from points[seen:]
            seen = len(points)
            deadline = time.monotonic() + limit_seconds
        if done:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{run_dir}: no new step for {limit_seconds:.0f} s")
        time.sleep(POLL_SECONDS)


class LiveLine:
    """A line that is rewritten in place on a terminal, and printed now and then into a log."""

    def __init__(self, log_every_seconds: float = 10) -> None:
        self.terminal = sys.stdout.isatty()
        self.log_every_seconds = log_every_seconds
        self.last_logged = float("-inf")

    def show(self, text: str) -> None:
        """Replace the line on a terminal. In a log, print it if enough time has passed."""
        if self.terminal:
            print(f"\r\033[K{text[:110]}", end="", flush=True)
        elif time.monotonic() - self.last_logged >= self.log_every_seconds:
            self.last_logged = time.monotonic()
            say(text)

    def end(self, text: str) -> None:
        """Leave `text` as the finished line."""
        print(f"\r\033[K{text}" if self.terminal else text, flush=True)


def step_text(point: dict[str, Any], max_steps: int) -> str:
    """A point as text, such as `step 20/300  loss 3.1234  12,345 tokens/s`."""
    rate = f"{point.get('tokens_per_second', 0):,.0f}"
    return f"step {point['step']}/{max_steps}  loss {point['loss']:.4f}  {rate} tokens/s"
