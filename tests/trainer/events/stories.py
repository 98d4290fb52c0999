"""Made-up runs with known accounts. Each notes beside its events what the time was spent on.

All times are whole milliseconds, which event files store exactly.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from trainer.events.event import Event, Name, to_line
from trainer.events.span import Kind

BEGIN_UNIX_MS = 1_800_000_000_000


@dataclass
class Story:
    """A made-up run. `spent` has the true times in milliseconds, by kind."""

    boot: str = "first"
    now_ms: int = 0
    boot_ms: int = -5_000_000  # when the machine was started
    clock_error_ms: int = 0
    step: int = 0
    saved: int = 0
    gpus: int = 2
    spent: Counter[Kind] = field(default_factory=Counter[Kind])
    kept: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """`(last step, productive milliseconds)` of steps that no later start has repeated."""
    paused_ms: int = 0
    """The true time after the run was finished, and before it was continued."""
    is_finished: bool = False
    pod: dict[str, Any] = field(default_factory=dict[str, Any])
    """The values with which the next pod reports its start."""
    content: bytes = b""

    def note(self, name: Name, **values: Any) -> None:
        """Append an event that happens now."""
        unix = (BEGIN_UNIX_MS + self.now_ms + self.clock_error_ms) / 1000
        event = Event(name, unix, (self.now_ms - self.boot_ms) / 1000, self.boot, values)
        self.content += to_line(event)

    def spend(self, kind: Kind, milliseconds: int) -> None:
        """Let this time pass, and count it as this kind."""
        self.now_ms += milliseconds
        self.spent[kind] += milliseconds

    def comes(self, pod: str, image_ms: int, container_ms: int) -> None:
        """Let a new pod come, up to its first process, whose times the kubelet has noted."""
        self.spend(Kind.IMAGE, image_ms)
        self.spend(Kind.CONTAINER, container_ms)
        seconds = {"image_seconds": image_ms / 1000, "container_seconds": container_ms / 1000}
        self.pod = {**seconds, "pod": pod}

    def starts(self, start_ms: int, rendezvous_ms: int, data_ms: int, restore_ms: int) -> None:
        """Start a pod, up to the first step of its ranks after the newest checkpoint."""
        self.is_finished = False
        age = start_ms // 2
        self.spend(Kind.START, age)
        self.note(Name.POD_STARTED, age_seconds=age / 1000, gpus=self.gpus, **self.pod)
        self.pod = {}
        self.round(start_ms, rendezvous_ms, data_ms, restore_ms)

    def round(self, start_ms: int, rendezvous_ms: int, data_ms: int, restore_ms: int) -> None:
        """Start the ranks of a running pod, up to their first step."""
        self.note(Name.ROUND_BEGUN, round=1, ranks=self.gpus)
        self.note(Name.RANKS_STARTED)
        self.spend(Kind.START, start_ms)
        self.note(Name.IMPORTS_DONE)
        self.spend(Kind.RENDEZVOUS, rendezvous_ms)
        self.note(Name.CONNECTED)
        self.spend(Kind.DATA, data_ms)
        self.note(Name.DATA_OPENED)
        self.spend(Kind.RESTORE if self.saved else Kind.START, restore_ms)
        self.note(Name.RESTORED, step=self.saved, tokens_per_step=100)
        self._goes_back_to(self.saved)
        self.spend(Kind.START, 700)
        self.step += 1
        self.kept.append((self.step, 0))
        self.note(Name.FIRST_STEP, step=self.step)

    def _goes_back_to(self, step: int) -> None:
        for last, productive_ms in self.kept:
            if last > step:
                self.spent[Kind.PRODUCTIVE] -= productive_ms
                self.spent[Kind.LOST] += productive_ms
        self.kept = [(last, productive) for last, productive in self.kept if last <= step]
        self.step = step

    def trains(self, steps: int, step_ms: int, data_ms: int = 0, save_ms: int = 0) -> None:
        """Make `steps` steps, and report them."""
        self.step += steps
        self.spend(Kind.PRODUCTIVE, steps * step_ms)
        self.spend(Kind.DATA, data_ms)
        self.spend(Kind.SAVE, save_ms)
        self.kept.append((self.step, steps * step_ms))
        self.note(
            Name.REPORT,
            step=self.step,
            steps=steps,
            data_seconds=data_ms / 1000,
            save_seconds=save_ms / 1000,
            longest_seconds=step_ms / 1000,
        )

    def evaluates(self, milliseconds: int) -> None:
        self.note(Name.EVALUATING)
        self.spend(Kind.EVALUATION, milliseconds)
        self.note(Name.RESUMED)

    def saves(self, milliseconds: int) -> None:
        self.note(Name.SAVING)
        self.spend(Kind.SAVE, milliseconds)
        self.saved = self.step
        self.note(Name.SAVED, step=self.step)
        self.note(Name.RESUMED)

    def lives_on(self, milliseconds: int) -> None:
        """Train after the last report until a kill, with nothing in the events but a sign
        of life.
        """
        self.spend(Kind.PRODUCTIVE, milliseconds)
        self.kept.append((self.step + 1, milliseconds))
        self.note(Name.ALIVE)

    def rank_dies(self, stop_ms: int, pause_ms: int) -> None:
        """Kill one rank, after which the entrypoint starts all ranks again."""
        self.note(Name.FAILING)
        self.spend(Kind.STOP, stop_ms)
        self.note(Name.ROUND_ENDED, how="retryable", reason="local rank 0 was killed by SIGKILL")
        self.spend(Kind.START, pause_ms)

    def is_stopped(self, save_ms: int, stop_ms: int) -> None:
        """Stop the run on request, so that it saves and ends."""
        self.note(Name.STOP_REQUESTED)
        self.saves(save_ms)
        self.note(Name.LEFT_LOOP)
        self.spend(Kind.STOP, stop_ms)
        self.note(Name.ROUND_ENDED, how="preempted", reason="stopped by a signal")
        self.note(Name.ENDED, how="preempted")

    def is_away(self, milliseconds: int) -> None:
        """Let time pass without a pod."""
        if self.is_finished:
            self.now_ms += milliseconds
            self.paused_ms += milliseconds
        else:
            self.spend(Kind.DOWN, milliseconds)

    def moves(self, boot: str) -> None:
        """Let the next pod run on another machine."""
        self.boot, self.boot_ms = boot, self.now_ms - 77_000

    def tears(self, cut: int) -> None:
        """Append only the first bytes of a line, as a killed process does."""
        event = Event(Name.REPORT, 1.0, 1.0, self.boot, {"step": 10**9})
        self.content += to_line(event)[: 1 + cut]

    def finishes(self) -> None:
        self.note(Name.FINISHED, step=self.step)
        self.is_finished = True
