"""Measures what preemption costs a run in a queue: `python -m bench.preemption`, as root.

A run of three pods trains in a platform's own queue of Kueue, which has room for it alone. Work of
a higher priority comes, takes the place and goes again, several times. Then the run ends, and
another one trains as many steps without a queue: their weights are compared byte by byte. The table
goes to docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.node import cluster_lab
from bench.preemption_rows import Preemption, row
from bench.table import publish
from infra.workloads.indexed_job import KIND
from sandbox.controllers.controller import running
from sandbox.controllers.kueue import KUEUE
from sandbox.follow import train_points
from sandbox.stack import Stack
from tests.e2e.asking import people_run, training_pods, weights
from tests.e2e.lab import ENDLESS, Lab, run_settings, wait_for
from tests.e2e.queue_guest import CPU, QUEUE, URGENT, end_others, start_others

HEADING = "## Preemption in a queue"
STACK = "bench-preemption"
RUN, UNDISTURBED = "bench-preempted", "bench-undisturbed"
DECAY_STEPS = 500  # the learning rate does not depend on how many steps there are in the end
MORE_STEPS = 50
LONGEST_SECONDS = 300.0


def settings_of(run_name: str, max_steps: int) -> dict[str, str]:
    """A run whose steps are the same, however many of them there are."""
    same = {"run.train.decay_steps": str(DECAY_STEPS), "run.eval.interval": str(ENDLESS)}
    return {**run_settings(run_name, max_steps), **same}


@contextmanager
def queued_run(lab: Lab) -> Iterator[Stack]:
    """A stack whose run trains in the queue of its platform; nothing of it is left."""
    settings = {
        **settings_of(RUN, ENDLESS),
        "queues.name": QUEUE,
        "queues.quota.cpu": CPU,
        f"queues.priorities.{URGENT}": "1000",
        "queue": QUEUE,
        "topology": KIND.name,
        "pods": "3",
        "processesPerPod": "1",
    }
    stack = lab.stack(STACK, "sandbox", settings)
    with running(lab.cluster, [KUEUE]):
        stack.up()
        yield stack
        stack.destroy()


def preempt(lab: Lab, stack: Stack, pause: float) -> Preemption:
    """Let the run train for a moment, take its place, and give it back.

    Args:
        lab: the cluster.
        stack: of the run.
        pause: seconds of training before the urgent work comes.
    """
    time.sleep(pause)
    begin = time.monotonic()
    start_others(lab, URGENT, URGENT)
    wait_for("the pods to go", lambda: not training_pods(lab, stack), LONGEST_SECONDS, 0.1)
    gone = time.monotonic()
    saved = max(lab.losses(RUN))
    end_others(lab, URGENT)
    free = time.monotonic()
    wait_for("the next step", lambda: max(lab.losses(RUN)) > saved, LONGEST_SECONDS, 0.1)
    back = time.monotonic()
    print(f"gone after {gone - begin:.1f} s, back after {back - free:.1f} s", flush=True)
    return Preemption(gone - begin, back - free)


def spent_restarts(lab: Lab) -> int:
    """What Kubernetes counts against the run's budget."""
    return int(lab.get("job", KIND.object_name)["status"].get("failed", 0))


def main(words: Sequence[str] | None = None) -> int:
    """Measure; returns 1 if a step was lost."""
    parser = argparse.ArgumentParser(prog="python -m bench.preemption", description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="how often the run is preempted")
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which it is")
    options = parser.parse_args(words)
    load, draw = os.getloadavg()[0], random.Random(options.seed)
    with (
        tempfile.TemporaryDirectory() as scratch,
        cluster_lab(Path(scratch)) as lab,
        queued_run(lab) as stack,
    ):
        found = [preempt(lab, stack, draw.uniform(0, 5)) for _ in range(options.times)]
        restarts = spent_restarts(lab)
        people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
        steps = max(lab.losses(RUN)) + MORE_STEPS
        stack.set_all(settings_of(RUN, steps))
        stack.up()
        lab.wait_done(RUN)
        written = [int(point["step"]) for point in train_points(lab.run_dir(RUN))]
        apart = {"topology": "multi-pod", "queue": None}
        stack.set_all({**apart, **settings_of(UNDISTURBED, steps)})
        stack.up()
        lab.wait_done(UNDISTURBED)
        sums = [weights(lab, name, steps) for name in (RUN, UNDISTURBED)]
    made = row(found, written, restarts, *sums)
    print(made.measured)
    publish(HEADING, "preemption", [made], load)
    return int(made.met is False)


if __name__ == "__main__":
    sys.exit(main())
