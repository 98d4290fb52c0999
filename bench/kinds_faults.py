"""The faults of `bench.kinds`: each is done to the pod of one node."""

from __future__ import annotations

from dataclasses import dataclass

from tests.e2e.lab import Lab

# Prints the time at which it kills; `train` is a word of the command line of a rank alone.
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


# So long a controller is down when a pod is evicted: such a run cannot go on before.
AWAY_SECONDS = 10.0
# A run whose rank was killed goes on all the same. Without a step it has its controller back then.
LONGEST_AWAY_SECONDS = 60.0


@dataclass(frozen=True)
class Fault:
    """What happens to the pod of a node.

    Args:
        what: for people.
        node: whose pod it is; -1: the last one.
        in_pod: it happens to a rank in the pod, which stays.
        away_seconds: so long the controller of the kind is down then, and no longer than until the
            next step; 0: it is not.
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
    """Kill one training process of a pod; returns the time, by the clock of this machine.

    Raises:
        RuntimeError: no process of the pod trains.
    """
    said = lab.kubectl("exec", pod, "--", "python3", "-S", "-c", _KILL).split()
    if not said:
        raise RuntimeError(f"no process of pod {pod} has the word `train` in its command line")
    return float(said[0])
