"""Cuts the time of a run into spans without gaps, by the events of node 0.

The kind of a span depends on the event at its begin (states.py). The time between two reports of
steps is cut further (training.py). Steps are repeated if a later start continues from before them.
What is needed from later events is read first (outlook.py). So each span is final when it is cut,
and the spans of a long run need not be kept.

This module does no input or output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from trainer.events.event import Event, Name
from trainer.events.outlook import Outlook, counted
from trainer.events.span import Kind, Phase, Span
from trainer.events.states import (
    AFTER,
    BEFORE_FIRST_STEP,
    CONTAINER,
    DOWN,
    IMAGE,
    TRAINING,
    State,
)
from trainer.events.timeline import MICRO
from trainer.events.training import reported, unreported

KILLED = "killed: it left no word about its end"
ASKED = "asked to stop"


@dataclass(frozen=True)
class Start:
    """One start of the training, which may still be under way.

    Args:
        step: The number of updates in the checkpoint from which it continued.
        reason: Why the start before it had ended; empty for the first start.
        has_stepped: Whether it came to its first step.
    """

    step: int = 0
    reason: str = ""
    has_stepped: bool = False


@dataclass(frozen=True)
class History:
    """What the events show beside the spans.

    Args:
        starts: The first start, and one for each interruption of the training.
        begin_unix_seconds: When the run began, by the machine's clock at that time.
        is_finished: Whether the run has come to its last step.
        step: The newest update that was reported.
        saved_step: The step of the newest checkpoint.
        lost_steps: How many reported updates were made again.
        tokens_per_step: The number of tokens of a step; 0 if it is not known.
        paused: The microseconds in no span: between the end of a finished run and its continuation.
    """

    starts: tuple[Start, ...] = ()
    begin_unix_seconds: float = 0.0
    is_finished: bool = False
    step: int = 0
    saved_step: int = 0
    lost_steps: int = 0
    tokens_per_step: int = 0
    paused: int = 0


_SAYS_WHY = (Name.FAILING, Name.ROUND_ENDED, Name.ENDED)
_REPORTED_BEFORE = (Name.EVALUATING, Name.SAVING, Name.RESUMED, Name.LEFT_LOOP, Name.FINISHED)


def read_history(
    events: Iterable[Event], outlook: Outlook, take_span: Callable[[Span], None]
) -> History:
    """Cut the time of a run into spans.

    The time between the end of a finished run and its continuation is in no span.

    Args:
        events: The events of node 0, in the order of the file.
        outlook: The outlook of the same events.
        take_span: Called with each span in the order of time, from 0 to the last sign of life or
            the end of the run. A span begins where the one before it ends, even if a pause was
            between them.
    """
    reader: _Reader | None = None
    age, begin_unix_seconds = 0, 0.0
    for now, event in counted(events):
        if reader is None:
            reader = _Reader(outlook, take_span)
            age = sum(_before(event).values()) if event.name == Name.POD_STARTED else 0
            begin_unix_seconds = event.unix_seconds - age / MICRO
        reader.take(now + age, event)
    return History() if reader is None else reader.history(begin_unix_seconds)


def _before(started: Event) -> dict[str, int]:
    """Return the times before an event `pod_started`, in microseconds by name, oldest first."""
    keys = ("image_seconds", "container_seconds", "age_seconds")
    return {key: round(float(started.values.get(key, 0)) * MICRO) for key in keys}


class _Reader:
    """Takes the events one after another."""

    def __init__(self, outlook: Outlook, take_span: Callable[[Span], None]):
        self._usual, self._goes_back_to = outlook.usual, outlook.goes_back_to
        self._take_span, self._end = take_span, 0  # the end of the newest span
        self._starts = list[Start]()
        self._state, self._open, self._seen = DOWN, 0, 0
        self._gpus = self._step = self._saved_step = self._tokens_per_step = 0
        self._lost_steps = self._restored_step = self._restorations = self._paused = 0
        self._trains, self._has_ended, self._is_finished = True, True, False
        self._reason = self._pod = ""

    def take(self, now: int, event: Event) -> None:
        if self._is_finished and event.name == Name.ROUND_BEGUN:
            self._state = AFTER[Name.GATHERING]  # node 0 has waited for other nodes since then
            self._is_finished = False
        if event.name == Name.POD_STARTED:
            self._close(self._seen, None)
            self._take_pod(now, event)
            if not self._has_ended and not self._reason:
                self._reason = KILLED
        elif event.name in AFTER:
            self._close(now, event)
        if event.name in AFTER:
            self._enter(event)
        self._remember(event)
        self._seen = now

    def history(self, begin_unix_seconds: float) -> History:
        self._close(self._open if self._is_finished else self._seen, None)
        if self._starts and not self._starts[-1].has_stepped:
            self._note(reason=self._reason)
        return History(
            tuple(self._starts),
            begin_unix_seconds,
            self._is_finished,
            self._step,
            self._saved_step,
            self._lost_steps,
            self._tokens_per_step,
            self._paused,
        )

    def _take_pod(self, now: int, event: Event) -> None:
        """Add the spans between the last sign of life and the begin of this pod's process."""
        image, container, age = _before(event).values()
        pod = str(event.values.get("pod", ""))
        if pod and pod == self._pod:
            image = 0  # another container of the same pod, whose image was there
        self._pod = pod
        self._pass(DOWN, now - age - container - image)
        self._is_finished = False
        self._gpus = int(event.number("gpus"))
        self._pass(IMAGE, now - age - container)
        self._pass(CONTAINER, now - age)

    def _pass(self, state: State, end: int) -> None:
        """Add a span of `state` until `end`, without an event at its begin or end."""
        self._state = state
        self._close(max(self._open, end), None)

    def _enter(self, event: Event) -> None:
        has_stepped = self._trains and bool(self._starts)
        states = AFTER if has_stepped else {**AFTER, **BEFORE_FIRST_STEP}
        self._state = states[event.name]
        self._is_finished = event.name == Name.FINISHED
        self._has_ended = event.name in (Name.ENDED, Name.FINISHED)

    def _remember(self, event: Event) -> None:
        if event.name == Name.RESTORED:
            self._restorations += 1
            self._lost_steps += max(0, self._step - event.step())
            self._step = self._saved_step = event.step()
            self._tokens_per_step = int(event.number("tokens_per_step"))
            self._note(step=event.step())
            self._restored_step = event.step()
        elif event.name == Name.FIRST_STEP:
            self._step, self._trains = event.step(), True
            self._note(step=self._restored_step, has_stepped=True, reason=self._reason)
            self._reason = ""
        elif event.name == Name.SAVED:
            self._saved_step = event.step()
        elif event.name == Name.STOP_REQUESTED:
            self._reason = ASKED
        elif event.name in _SAYS_WHY and not self._reason:
            self._reason = str(event.values.get("reason", ""))

    def _note(self, **changes: Any) -> None:
        """Change the fields of the newest start."""
        if self._starts:
            self._starts[-1] = replace(self._starts[-1], **changes)

    def _close(self, end: int, event: Event | None) -> None:
        """End the open span with `event`; None if no event ended it."""
        state, length = self._state, end - self._open
        if self._is_finished:  # the run goes on, because `train.max_steps` was raised
            self._paused += length
        elif state == TRAINING:
            self._close_training(length, event)
        elif event is not None and event.name == Name.RESTORED and event.step() == 0:
            self._add(Kind.START, state.phase, length)  # there was nothing to restore
        elif event is not None and event.name == Name.FIRST_STEP:
            self._add(state.kind, state.phase, length, max(0, event.step() - 1), event.step())
        else:
            self._add(state.kind, state.phase, length)
        self._open = end

    def _close_training(self, length: int, event: Event | None) -> None:
        if event is not None and event.name == Name.REPORT:
            first, self._step = min(self._step, event.step()), event.step()
            for kind, part in reported(length, event, self._usual):
                self._add(kind, None, part, first, self._step)
        elif event is not None and event.name in _REPORTED_BEFORE:
            self._add(Kind.PRODUCTIVE, None, length, max(0, self._step - 1), self._step)
        else:
            for kind, part in unreported(length, self._usual):
                phase = Phase.DETECT if kind == Kind.HANG else None
                self._add(kind, phase, part, self._step, self._step + 1)

    def _add(
        self, kind: Kind, phase: Phase | None, length: int, first: int = 0, last: int = 0
    ) -> None:
        if phase is not None and self._trains and length:
            self._trains = False
            self._starts.append(Start())
        if length:
            begin, self._end = self._end, self._end + length
            number = len(self._starts)
            span = Span(begin, self._end, kind, phase, number, self._gpus, first, last)
            step = self._goes_back_to[self._restorations]
            for part in [span] if step is None else span.repeated_after(step):
                self._take_span(part)
