"""The table of what a run does after each event."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.events.event import Name
from trainer.events.span import Kind, Phase


@dataclass(frozen=True)
class State:
    """What a span of time is spent on, and the phase of a start to which it belongs.

    `phase` is None while the run trains.
    """

    kind: Kind
    phase: Phase | None


TRAINING = State(Kind.PRODUCTIVE, None)
DOWN = State(Kind.DOWN, Phase.DETECT)
IMAGE = State(Kind.IMAGE, Phase.POD)
CONTAINER = State(Kind.CONTAINER, Phase.POD)
AFTER: dict[str, State] = {  # other events neither begin nor end a span
    Name.POD_STARTED: State(Kind.START, Phase.START),
    Name.GATHERING: State(Kind.RENDEZVOUS, Phase.RENDEZVOUS),
    Name.ROUND_BEGUN: State(Kind.START, Phase.START),
    Name.RANKS_STARTED: State(Kind.START, Phase.IMPORT),
    Name.IMPORTS_DONE: State(Kind.RENDEZVOUS, Phase.RENDEZVOUS),
    Name.CONNECTED: State(Kind.DATA, Phase.RESTORE),
    Name.DATA_OPENED: State(Kind.RESTORE, Phase.RESTORE),
    Name.RESTORED: State(Kind.START, Phase.FIRST_STEP),
    Name.FIRST_STEP: TRAINING,
    Name.REPORT: TRAINING,
    Name.EVALUATING: State(Kind.EVALUATION, None),
    Name.SAVING: State(Kind.SAVE, None),
    Name.RESUMED: TRAINING,
    Name.LEFT_LOOP: State(Kind.STOP, Phase.DETECT),
    Name.FAILING: State(Kind.STOP, Phase.DETECT),
    Name.ROUND_ENDED: State(Kind.START, Phase.START),
    Name.ENDED: DOWN,
    Name.FINISHED: DOWN,
}
# In the training loop, before the first step of a start: an evaluation that was due is made now.
BEFORE_FIRST_STEP: dict[str, State] = {
    Name.EVALUATING: State(Kind.EVALUATION, Phase.FIRST_STEP),
    Name.SAVING: State(Kind.SAVE, Phase.FIRST_STEP),
    Name.RESUMED: AFTER[Name.RESTORED],
}
