"""Settings of runs of each kind in a queue of Kueue: their pods, and how long they train."""

from infra.workloads import WORKLOADS
from tests.e2e.lab import ENDLESS, run_settings

RANKS = 3
DECAY_STEPS = 500  # fixed, so that the learning rate does not depend on `max_steps`
MORE_STEPS = 50  # how many steps a run makes after a stop
SPENT = ("restarts", "restartsCountTowardsMax", "failed")  # status fields that count restarts


def shape_of(topology: str) -> dict[str, str | None]:
    """Return the settings of RANKS ranks: each in its own pod, or all in one pod."""
    if WORKLOADS[topology].several_pods:
        return {"pods": str(RANKS), "processesPerPod": "1"}
    return {"pods": None, "processesPerPod": str(RANKS)}


def trained_for(run_name: str, max_steps: int) -> dict[str, str]:
    """Return the settings of a run whose single steps do not depend on the number of steps."""
    same = {"run.train.decay_steps": str(DECAY_STEPS), "run.eval.interval": str(ENDLESS)}
    return {**run_settings(run_name, max_steps), **same}
