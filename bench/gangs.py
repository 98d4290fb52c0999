"""Measures gangs in a queue while its controllers are killed: `python -m bench.gangs`, as root.

A gang is a group of pods that start together. Gangs of three pods wait in a queue that has room for
one gang: JobSets in a platform's own queue of Kueue, then Jobs of Volcano in a queue of Volcano. A
watch of the API server checks that pods of two gangs are never unfinished at the same time. At
first nothing disturbs the gangs, and the time until the next gang runs is measured. Then the
controllers are killed (SIGKILL) at random moments and started again. The table goes to
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.gangs_queues import LABEL, QUEUES, Queue
from bench.gangs_rows import disturbed, overlaps, undisturbed
from bench.kinds_watch import Seen, Watch
from bench.node import cluster_lab
from bench.options import refuse_unknown
from bench.row import Row
from bench.table import publish
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.controllers.outage import kill_controller, start_again
from sandbox.stack import Stack
from tests.e2e.lab import Lab, wait_for

DEFAULT = "(default: %(default)s)"
HEADING = "## Gangs in a queue"
IN_QUEUE = 2  # how many unfinished gangs exist at any time; the queue has room for one


@contextmanager
def platform(lab: Lab) -> Iterator[Stack]:
    """One platform for all queues, so that the image is brought to the node only once."""
    stack = lab.stack("bench-gangs", "sandbox", {"topology": "none"})
    try:
        yield stack
    finally:
        stack.destroy()


@contextmanager
def made(lab: Lab, stack: Stack, queue: Queue) -> Iterator[None]:
    """Make the queue on the platform and run its controllers; both are removed after the block."""
    with running(lab.cluster, [CONTROLLERS[name] for name in queue.controllers]):
        stack.set_all(queue.settings)
        stack.up()
        for item in queue.objects:
            lab.kubectl("create", "-f", _file(lab, item))
        yield
        lab.kubectl("delete", queue.resource, "--all")
        stack.set_all(dict.fromkeys(key.partition(".")[0] for key in queue.settings))
        stack.up()


class Killer(threading.Thread):
    """Kills a controller at a random moment and starts it again, `kills` times."""

    def __init__(self, lab: Lab, names: Sequence[str], draw: random.Random, kills: int) -> None:
        super().__init__(daemon=True)
        self.lab, self.names, self.draw = lab, names, draw
        self.kills, self.done = kills, 0

    def run(self) -> None:
        """Kill a controller and start it again, until all kills are done."""
        while self.done < self.kills:
            time.sleep(self.draw.uniform(0, 3))
            name = self.draw.choice(self.names)
            kill_controller(self.lab.cluster, name)
            self.done += 1
            start_again(self.lab.cluster, name)


def _file(lab: Lab, item: object) -> str:
    path = lab.scratch / "object.json"
    path.write_text(json.dumps(item))
    return str(path)


def gangs(lab: Lab, queue: Queue, first: int, goes_on: Callable[[int], bool]) -> int:
    """Make gangs while `goes_on` returns true, and wait until all of them have ended.

    Args:
        lab: the cluster.
        queue: the queue in which the gangs wait.
        first: the number of the first gang.
        goes_on: a function that gets the number of gangs made so far.

    Returns:
        How many gangs were made.
    """
    image = next(name for name in lab.trainer_images() if not name.startswith("sha256:"))
    count = 0
    while goes_on(count):
        items = lab.get(queue.resource)["items"]
        if len([item for item in items if not queue.is_over(item)]) < IN_QUEUE:
            given = _file(lab, queue.gang(f"gang-{first + count}", image))
            try:
                lab.kubectl("create", "-f", given)
                count += 1
            except AssertionError:  # the controller that serves the webhook was just killed
                time.sleep(0.5)
        time.sleep(0.2)

    def all_over() -> bool:
        return all(queue.is_over(item) for item in lab.get(queue.resource)["items"])

    wait_for("the end of the last gangs", all_over, 300)
    return count


def measured(lab: Lab, queue: Queue, count: int, kills: int, seed: int) -> list[Row]:
    """Both rows of a queue: `count` undisturbed gangs, then gangs whose controllers are killed."""
    with Watch(lab, LABEL) as pods:
        gangs(lab, queue, 0, lambda made: made < count)
    calm = _shown(pods.seen())
    killer = Killer(lab, queue.controllers, random.Random(seed), kills)
    with Watch(lab, LABEL) as pods:
        killer.start()
        number = gangs(lab, queue, count, lambda _: killer.is_alive())
    if killer.done < kills:
        raise RuntimeError(f"the thread that kills has ended after {killer.done} kills")
    stormy = [seen for seen in _shown(pods.seen()) if not _is_of_first(seen, count)]
    return [undisturbed(calm, count, queue.title), disturbed(stormy, number, kills, queue.title)]


def _is_of_first(seen: Seen, count: int) -> bool:
    """Whether a pod belongs to one of the first `count` gangs, whose objects still exist."""
    return int(seen.mark.removeprefix("gang-")) < count


def _shown(seen: Sequence[Seen]) -> Sequence[Seen]:
    for line in overlaps(seen):
        print(line)
    return seen


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and return 1 if two gangs had pods at once, or the next one ran too late."""
    parser = argparse.ArgumentParser(prog="python -m bench.gangs", description=__doc__)
    add = parser.add_argument
    add(
        "queues",
        nargs="*",
        default=[*QUEUES],
        metavar="QUEUE",
        help=f"queues to measure, of {', '.join(QUEUES)} (default: all)",
    )
    add("--gangs", type=int, default=20, help=f"number of undisturbed gangs {DEFAULT}")
    add("--kills", type=int, default=50, help=f"number of kills of controllers {DEFAULT}")
    add("--seed", type=int, default=0, help=f"seed for the moments of the kills {DEFAULT}")
    options = parser.parse_args(words)
    refuse_unknown(parser, "queue", options.queues, QUEUES)
    load, rows = os.getloadavg()[0], list[Row]()
    with (
        tempfile.TemporaryDirectory() as scratch,
        cluster_lab(Path(scratch)) as lab,
        platform(lab) as stack,
    ):
        for name in options.queues:
            queue = QUEUES[name]
            with made(lab, stack, queue):
                rows += measured(lab, queue, options.gangs, options.kills, options.seed)
    for row in rows:
        print(row.what, row.measured, sep=": ")
    publish(HEADING, "gangs", rows, load)
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
