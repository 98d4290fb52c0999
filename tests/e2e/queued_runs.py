"""Runs of each kind in a queue of Kueue: their shape, how long they train, what they have spent."""

from infra.workloads import WORKLOADS
from tests.e2e.lab import ENDLESS, run_settings

RANKS = 3
DECAY_STEPS = 500  # the learning rate does not depend on how many steps there are in the end
MORE_STEPS = 50  # after a stop
SPENT = ("restarts", "restartsCountTowardsMax", "failed")  # in the status of one kind or another


def shape_of(topology: str) -> dict[str, str | None]:
    """As many ranks: in one pod each, or all in one pod."""
    if WORKLOADS[topology].several_pods:
        return {"pods": str(RANKS), "processesPerPod": "1"}
    return {"pods": None, "processesPerPod": str(RANKS)}


def trained_for(run_name: str, max_steps: int) -> dict[str, str]:
    """Settings of a run whose steps are the same, however many of them there are."""
    same = {"run.train.decay_steps": str(DECAY_STEPS), "run.eval.interval": str(ENDLESS)}
    return {**run_settings(run_name, max_steps), **same}
