"""Watches a run from outside: its steps in the file that it writes, its pods at the API server."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

from infra.kube.names import COMPONENT_LABEL, TRAINING
from tests.e2e.lab import NAMESPACE, Lab, wait_for
from trainer.events.event import Name, event_file, parse_events

_POLL_SECONDS = 0.05
_TAIL_BYTES = 100_000
_EVENT_BYTES = 20_000
_LIMIT_SECONDS = 300.0
_OVER = ("Succeeded", "Failed")
_FIELDS = ("type", "object.metadata.uid", "object.metadata.name", "object.status.phase")


class StepWatch:
    """Notes when each step was made, even if a restart removes the step from the file again."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._times = set[float]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> StepWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            self._times.update(_times(_tail(self._run_dir / "metrics.jsonl", _TAIL_BYTES)))
            self._over.wait(_POLL_SECONDS)

    def has_saved_after(self, begin: float) -> bool:
        """Whether there is a checkpoint of steps that were made after the Unix time `begin`."""
        folder = self._run_dir / "checkpoints"
        return any(path.stat().st_mtime > begin + 0.5 for path in folder.glob("step-*"))

    def outage(self, fault: float) -> tuple[float, float]:
        """The Unix times of the last step before the pause after a fault, and of the next step.

        The pause is over when the run's own events say that it has made a first step.
        """
        starts = list[float]()

        def has_started() -> bool:
            events, _ = parse_events(_tail(event_file(self._run_dir, 0), _EVENT_BYTES))
            first = (e.unix_seconds for e in events if e.name == Name.FIRST_STEP)
            starts[:] = [at for at in first if at > fault]
            return bool(starts)

        wait_for("a new start", has_started, _LIMIT_SECONDS, _POLL_SECONDS)
        wait_for(
            "further steps",
            lambda: any(at > starts[0] + 0.5 for at in self._times.copy()),
            _LIMIT_SECONDS,
            _POLL_SECONDS,
        )
        ordered = sorted(at for at in self._times.copy() if at > fault - 5)
        pairs = [(one, two) for one, two in pairwise(ordered) if two > fault]
        return max(pairs, key=lambda pair: pair[1] - pair[0])


def first_step(run_dir: Path) -> float:
    """The Unix time of a run's first step. The function waits until the run has made it."""
    path = run_dir / "metrics.jsonl"

    def first() -> float:
        begin = path.read_bytes()[:_EVENT_BYTES] if path.exists() else b""
        return min(_times(begin), default=0.0)

    return wait_for("the first step", first, _LIMIT_SECONDS, _POLL_SECONDS)


def _tail(path: Path, size: int) -> bytes:
    """The last `size` bytes of a file; empty if there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read()
    except FileNotFoundError:
        return b""


def _times(content: bytes) -> list[float]:
    """The Unix times of the steps in these lines; lines that are cut off do not count."""
    found = list[float]()
    for line in content.splitlines():
        try:
            found.append(float(json.loads(line)["unix_time"]))
        except (ValueError, KeyError, TypeError):
            continue
    return found


@dataclass
class PodTimes:
    """The Unix times at which a pod ended, its successor was made, and that ran; 0: never seen."""

    ended: float = 0.0
    made: float = 0.0
    ran: float = 0.0


@dataclass(frozen=True)
class Seen:
    """A state of a pod, and the Unix time `at` which it was seen.

    `mark` is the value of the label that is watched.
    """

    at: float
    event: str
    uid: str
    name: str
    phase: str
    mark: str

    @property
    def is_over(self) -> bool:
        """Whether the pod has ended or is gone."""
        return self.event == "DELETED" or self.phase in _OVER


class Watch:
    """Notes each state of the pods with a label, as soon as the API server reports it."""

    def __init__(self, lab: Lab, label: str, value: str = "") -> None:
        self._seen = list[Seen]()
        fields = (*_FIELDS, "object.metadata.labels." + label.replace(".", "\\."))
        path = "|".join(f"{{.{name}}}" for name in fields) + "{'\\n'}"
        selector = f"{label}={value}" if value else label
        self._program = subprocess.Popen(
            [
                *(*lab.cluster.kubectl, "-n", NAMESPACE, "get", "pods", "-l", selector),
                *("--watch", "--output-watch-events", "-o", f"jsonpath={path}"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._program.terminate()
        self._program.wait()
        self._thread.join()
        assert self._program.stdout
        self._program.stdout.close()

    def _run(self) -> None:
        assert self._program.stdout
        for line in self._program.stdout:
            event, uid, name, phase, mark = line.rstrip().split("|")
            self._seen.append(Seen(time.time(), event, uid, name, phase, mark))

    def seen(self) -> list[Seen]:
        """All states so far, in the order in which they were seen."""
        return self._seen.copy()


class PodWatch(Watch):
    """Watches the training pod of one node, and the pod that replaces it."""

    def __init__(self, lab: Lab, name: str) -> None:
        """`name` is the pod's name, or the beginning of it, which ends with `-`."""
        super().__init__(lab, COMPONENT_LABEL, TRAINING)
        self._given = name

    def __enter__(self) -> Self:
        super().__enter__()
        wait_for("the pod to be seen", self._running, 60, _POLL_SECONDS)
        newest = self._running()[-1]
        self._uid, self.name = newest.uid, newest.name
        return self

    def _of_node(self) -> list[Seen]:
        is_begin = self._given.endswith("-")
        return [
            seen
            for seen in self.seen()
            if seen.name == self._given or (is_begin and seen.name.startswith(self._given))
        ]

    def _running(self) -> list[Seen]:
        newest = {seen.uid: seen for seen in self._of_node()}
        return [s for s in newest.values() if s.phase == "Running" and not s.is_over]

    def times(self) -> PodTimes:
        """The times of the pod that ran at the beginning of the watch, and of its successor."""
        seen, found = self._of_node(), PodTimes()
        found.ended = next((s.at for s in seen if s.uid == self._uid and s.is_over), 0.0)
        begin = next(index for index, s in enumerate(seen) if s.uid == self._uid)
        others = [s for s in seen[begin + 1 :] if s.uid != self._uid and not s.is_over]
        found.made = next((s.at for s in others if s.event == "ADDED"), 0.0)
        found.ran = next((s.at for s in others if s.phase == "Running"), 0.0)
        return found
