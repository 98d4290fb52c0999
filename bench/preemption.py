"""Measures what preemption costs in a queue: `python -m bench.preemption [KIND ...]`, as root.

A run of three ranks trains in a platform's own queue of Kueue, which has room for that run only.
Several times, work of a higher priority comes, preempts the run, and ends. Then the run ends, and
another run trains for as many steps without a queue. The weights of both are compared byte by byte.
This is done for each kind of workload that can be in a queue, one after the other. The table goes
to docs/benchmarks.md.
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

from bench.kinds import KINDS
from bench.node import cluster_lab
from bench.options import refuse_unknown
from bench.preemption_rows import Preemption, row
from bench.row import Row
from bench.table import publish
from infra.workloads import WORKLOADS
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.controllers.kueue import KUEUE
from sandbox.follow import train_points
from sandbox.stack import Stack
from tests.e2e.asking import people_run, training_pods, weights
from tests.e2e.lab import ENDLESS, Lab, wait_for
from tests.e2e.queue_guest import CPU, QUEUE, URGENT, end_others, start_others
from tests.e2e.queued_runs import MORE_STEPS, SPENT, shape_of, trained_for

HEADING = "## Preemption in a queue"
STACK = "bench-preemption"
QUEUED = tuple(name for name, kind in WORKLOADS.items() if kind.queued)
LONGEST_SECONDS = 300.0


@contextmanager
def platform(lab: Lab, topologies: Sequence[str]) -> Iterator[Stack]:
    """A stack that makes the queue, with the kinds' controllers; all of it ends with the block."""
    settings = {
        "topology": "none",
        "queues.name": QUEUE,
        "queues.quota.cpu": CPU,
        f"queues.priorities.{URGENT}": "1000",
    }
    names = dict.fromkeys(name for kind in topologies for name in KINDS[kind].controllers)
    with running(lab.cluster, [*(CONTROLLERS[name] for name in names), KUEUE]):
        stack = lab.stack(STACK, "sandbox", settings)
        stack.up()
        yield stack
        stack.destroy()


def preempt(lab: Lab, stack: Stack, run: str, pause: float) -> Preemption:
    """Let the run train for a moment, preempt it by urgent work, and end that work.

    Args:
        lab: the cluster.
        stack: the stack of the run.
        run: the name of the run.
        pause: seconds of training before the urgent work comes.
    """
    time.sleep(pause)
    begin = time.monotonic()
    start_others(lab, URGENT, URGENT)
    wait_for("the pods to go", lambda: not training_pods(lab, stack), LONGEST_SECONDS, 0.1)
    gone = time.monotonic()
    saved = max(lab.losses(run))
    end_others(lab, URGENT)
    free = time.monotonic()
    wait_for("the next step", lambda: max(lab.losses(run)) > saved, LONGEST_SECONDS, 0.1)
    back = time.monotonic()
    print(f"{run}: gone after {gone - begin:.1f} s, back after {back - free:.1f} s", flush=True)
    return Preemption(gone - begin, back - free)


def spent_restarts(lab: Lab, topology: str) -> int:
    """How many restarts the kind's controllers have counted against the run's budget."""
    kind = WORKLOADS[topology]
    status = lab.get(kind.kind.lower(), kind.object_name).get("status", {})
    return sum(int(status.get(field) or 0) for field in SPENT)


def measured(lab: Lab, stack: Stack, topology: str, times: int, draw: random.Random) -> Row:
    """The row of one kind: a run in the queue, and an undisturbed one of as many steps."""
    run, undisturbed = f"bench-preempted-{topology}", f"bench-undisturbed-{topology}"
    in_queue = {"topology": topology, "queue": QUEUE, **shape_of(topology)}
    stack.set_all({**in_queue, **trained_for(run, ENDLESS)})
    stack.up()
    found = [preempt(lab, stack, run, draw.uniform(0, 5)) for _ in range(times)]
    restarts = spent_restarts(lab, topology)
    people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    steps = max(lab.losses(run)) + MORE_STEPS
    stack.set_all(trained_for(run, steps))
    stack.up()
    lab.wait_done(run)
    written = [int(point["step"]) for point in train_points(lab.run_dir(run))]
    alone = {"topology": "multi-pod", "queue": None, **shape_of("multi-pod")}
    stack.set_all({**alone, **trained_for(undisturbed, steps)})
    stack.up()
    lab.wait_done(undisturbed)
    sums = [weights(lab, name, steps) for name in (run, undisturbed)]
    return row(topology, found, written, restarts, *sums)


def main(words: Sequence[str] | None = None) -> int:
    """Measure the kinds, and return 1 if a step was lost or a restart was spent.

    It also returns 1 if the weights of the two runs differ.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.preemption", description=__doc__)
    parser.add_argument(
        "kinds",
        nargs="*",
        metavar="KIND",
        help=f"kinds to measure, of {', '.join(QUEUED)} (default: all)",
    )
    parser.add_argument(
        "--times", type=int, default=10, help="how often a run is preempted (default: %(default)s)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed for the moments of the preemptions (default: %(default)s)",
    )
    options = parser.parse_args(words)
    kinds = options.kinds or list(QUEUED)
    refuse_unknown(parser, "kind that can be in a queue of Kueue", kinds, QUEUED)
    draw, made = random.Random(options.seed), list[Row]()
    with (
        tempfile.TemporaryDirectory() as scratch,
        cluster_lab(Path(scratch)) as lab,
        platform(lab, kinds) as stack,
    ):
        for topology in kinds:
            load = os.getloadavg()[0]
            made.append(measured(lab, stack, topology, options.times, draw))
            print(made[-1].measured, flush=True)
            publish(HEADING, "preemption", made[-1:], load, keep_others=True)
    return int(any(row.met is False for row in made))


if __name__ == "__main__":
    sys.exit(main())
