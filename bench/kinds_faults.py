"""The faults that `bench.kinds` does, each to the pod of one node."""

from __future__ import annotations

from dataclasses import dataclass

from tests.e2e.lab import Lab

# Prints the Unix time of the kill. Only a rank's command line has the word `train`.
_KILL = """
import os, pathlib, signal, time
for p in sorted(pathlib.Path('/proc').glob('[0-9]*/cmdline'), key=lambda p: int(p.parent.name)):
    try: words, name = p.read_bytes().split(b'\\0'), (p.parent / 'comm').read_text()
    except OSError: continue
    if b'train' in words and not name.startswith('spare'):
        print(time.time())
        os.kill(int(p.parent.name), signal.SIGKILL)
        break
"""


# How long a controller is down when a pod is evicted. The run cannot go on before that has passed.
AWAY_SECONDS = 10.0
# How long a controller is down at most when a rank is killed. The run goes on without a controller,
# and the outage ends with its next step.
LONGEST_AWAY_SECONDS = 60.0


@dataclass(frozen=True)
class Fault:
    """What happens to the pod of a node.

    Args:
        what: a name of the fault for people.
        node: the number of the node whose pod it happens to; -1: the last node.
        in_pod: whether it happens to a rank in the pod, so that the pod stays.
        away_seconds: the longest time for which the kind's controller is down; the outage ends
            earlier if the run makes a step. 0: the controller is not down.
    """

    what: str
    node: int
    in_pod: bool
    away_seconds: float = 0.0


FAULTS = (
    Fault("kill -9 of a rank", 0, True),
    Fault("the eviction of a pod", 1, False),
    Fault("the eviction of node 0's pod", 0, False),
    Fault("kill -9 of a rank while the controller is down", 0, True, LONGEST_AWAY_SECONDS),
    Fault("the eviction of a pod while the controller is down", -1, False, AWAY_SECONDS),
)


def kill_rank(lab: Lab, pod: str) -> float:
    """Kill one training process of a pod, and return the Unix time of the kill in seconds.

    Raises:
        RuntimeError: no process of the pod trains.
    """
    said = lab.kubectl("exec", pod, "--", "python3", "-S", "-c", _KILL).split()
    if not said:
        raise RuntimeError(f"no process of pod {pod} has the word `train` in its command line")
    return float(said[0])
