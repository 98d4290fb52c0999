"""Counts what the program of a pod knows about itself, for Prometheus.

The program's main loop writes here and another thread reads, so both take a lock for an instant.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from enum import StrEnum

from trainer.config import RunConfig
from trainer.launch.node import Node
from trainer.monitoring import families as names
from trainer.monitoring.text import Sample


class State(StrEnum):
    """What the ranks of this pod do at the moment."""

    WAITING = "waiting"
    """No rank runs: the pod waits for other pods, or before another start."""
    STARTING = "starting"
    """The ranks run, but not all of them have made a step."""
    TRAINING = "training"
    """All ranks have made a step."""
    ENDED = "ended"
    """The run is finished, or this pod has given up, but the pod still exists."""


class Vitals:
    """Counts what happens to the ranks of this pod."""

    def __init__(
        self, config: RunConfig, node: Node, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config, self._node, self._clock = config, node, clock
        self._lock = threading.Lock()
        self._began_unix_seconds = time.time()
        self._state, self._since = State.WAITING, clock()
        self._seconds = dict.fromkeys(State, 0.0)
        self._starts = self._divergences = 0
        self._has_finished = self._has_failed = False
        self._ranks_alive = 0

    def enter(self, state: State) -> None:
        """Note that `state` begins."""
        with self._lock:
            now = self._clock()
            self._seconds[self._state] += now - self._since
            self._state, self._since = state, now
            self._starts += state == State.STARTING

    def see_ranks(self, exit_codes: Sequence[int | None]) -> None:
        """Note how many ranks run: the exit code of a running rank is None."""
        self._ranks_alive = exit_codes.count(None)

    def round_ended(self, reason: str) -> None:
        """Note that no rank runs any more; `reason` is what the ranks reported."""
        self._ranks_alive = 0
        self._divergences += " diverged: " in reason  # the word of raise_diverged
        self.enter(State.WAITING)

    def end(self, *, has_failed: bool) -> None:
        """Note that the run is finished, or that this pod gives up."""
        self._has_finished, self._has_failed = not has_failed, has_failed
        self.enter(State.ENDED)

    def samples(self) -> Sequence[Sample]:
        """Return all samples of this pod's program."""
        config, node = self._config, self._node
        with self._lock:
            seconds = dict(self._seconds)
            seconds[self._state] += self._clock() - self._since
            starts = self._starts
        about = dict[str, str]()
        if not config.has_program:  # of a program, these are not known
            about = {
                "dataset": config.dataset.name,
                "device": config.train.device,
                "dtype": config.train.dtype,
                "parallel": config.train.parallel,
            }
        found = [
            Sample(names.INFO, 1, about),
            Sample(names.START, round(self._began_unix_seconds, 3)),
            Sample(names.CONFIGURED, node.nnodes * node.local_ranks),
            Sample(names.ALIVE, self._ranks_alive),
            Sample(names.STARTS, starts),
            Sample(names.RESTARTS, max(0, starts - 1)),
            Sample(names.DIVERGENCES, self._divergences),
            Sample(names.FINISHED, self._has_finished),
            Sample(names.FAILED, self._has_failed),
        ]
        for state, value in seconds.items():
            amount = round(value * node.local_ranks, 3)
            found.append(Sample(names.RANK_SECONDS, amount, {"state": state.value}))
        return found
