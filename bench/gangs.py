"""Measures gangs in a queue while the controllers are killed: `python -m bench.gangs`, as root.

JobSets of three pods wait in a platform's own queue of Kueue that has room for one of them. The
API server is watched all the time: at no moment may pods of two of them be there that have not
ended. Meanwhile Kueue's and JobSet's controllers are killed (SIGKILL) at drawn moments and started
again. The table goes to docs/benchmarks.md.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.gangs_rows import PODS, overlaps, row
from bench.kinds_watch import Watch
from bench.node import cluster_lab
from bench.table import publish
from infra.names import QUEUE_LABEL
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running, start_controller
from sandbox.stack import Stack
from tests.e2e.lab import NAMESPACE, Lab, wait_for

HEADING = "## Gangs in a queue"
NAMES = ("jobset", "kueue")
QUEUE, LABEL = "gpus", "bench/gang"
WORK_SECONDS = 2
IN_QUEUE = 2  # so many gangs are there at every time, and the queue has room for one


@contextmanager
def queue(lab: Lab) -> Iterator[None]:
    """A platform whose queue has room for one gang, on a cluster with both controllers."""
    settings = {"topology": "none", "queues.name": QUEUE, "queues.quota.cpu": f"{PODS * 100}m"}
    stack: Stack = lab.stack("bench-gangs", "sandbox", settings)
    with running(lab.cluster, [CONTROLLERS[name] for name in NAMES]):
        stack.up()
        yield
        stack.destroy()


def gang(name: str, image: str) -> dict[str, Any]:
    """A JobSet whose pods work for a moment and end."""
    container = {
        "name": "work",
        "image": image,
        "command": ["sleep", str(WORK_SECONDS)],
        "resources": {"requests": {"cpu": "100m"}},
    }
    pod = {
        "metadata": {"labels": {LABEL: name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }
    job = {"parallelism": PODS, "completions": PODS, "template": pod}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {QUEUE_LABEL: QUEUE}},
        "spec": {"replicatedJobs": [{"name": "nodes", "template": {"spec": job}}]},
    }


class Killer(threading.Thread):
    """Kills a controller at a drawn moment, starts it again, and so on until it is told to end."""

    def __init__(self, lab: Lab, draw: random.Random, kills: int) -> None:
        super().__init__(daemon=True)
        self.lab, self.draw, self.kills, self.done = lab, draw, kills, 0
        self.over = threading.Event()

    def run(self) -> None:
        """Each kill is followed by the start of what was killed."""
        while self.done < self.kills and not self.over.wait(self.draw.uniform(0, 3)):
            controller = CONTROLLERS[self.draw.choice(NAMES)]
            self._kill(controller.name)
            self.done += 1
            start_controller(self.lab.cluster, controller)

    def _kill(self, name: str) -> None:
        """With its child, where a shell has started it."""
        node = self.lab.cluster.node(1)
        pid = (node.layout.run / f"{name}.pid").read_text().split()[0]
        assert node.holder is not None
        script = 'kill -9 "$1" $(cat "/proc/$1/task/$1/children")'
        self.lab.shell(" ".join(map(_quoted, node.holder.enter("sh", "-c", script, "sh", pid))))
        wait_for(f"the end of {name}", lambda: node.ended([name]), 30, 0.05)
        node.end(name)  # it is forgotten: whoever waits for the cluster would be told of its end


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def gangs(lab: Lab, killer: Killer) -> int:
    """Let gangs come and go for as long as there are kills to make; returns how many were there."""
    image = next(name for name in lab.trainer_images() if not name.startswith("sha256:"))
    number, given = 0, lab.scratch / "gang.json"
    killer.start()
    while killer.is_alive():
        waiting = [
            item["metadata"]["name"]
            for item in lab.get("jobset")["items"]
            if not item.get("status", {}).get("terminalState")
        ]
        if len(waiting) < IN_QUEUE:
            given.write_text(json.dumps(gang(f"gang-{number}", image)))
            try:
                lab.kubectl("create", "-f", str(given))
                number += 1
            except AssertionError:  # the webhook's controller was killed a moment ago
                time.sleep(0.5)
        time.sleep(0.2)
    if killer.done < killer.kills:
        raise RuntimeError(f"the thread that kills has ended after {killer.done} kills")
    wait_for("the end of the last gangs", lambda: _all_over(lab), 300)
    return number


def _all_over(lab: Lab) -> bool:
    items = lab.get("jobset")["items"]
    return all(item.get("status", {}).get("terminalState") == "Completed" for item in items)


def main(words: Sequence[str] | None = None) -> int:
    """Measure; returns 1 if two gangs held pods at once."""
    parser = argparse.ArgumentParser(prog="python -m bench.gangs", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of controllers")
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which they come")
    options = parser.parse_args(words)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch, cluster_lab(Path(scratch)) as lab, queue(lab):
        killer = Killer(lab, random.Random(options.seed), options.kills)
        with Watch(lab, LABEL) as pods:
            number = gangs(lab, killer)
        lab.kubectl("delete", "jobset", "--all")
        seen = pods.seen()
    for line in overlaps(seen):
        print(line)
    found = row(seen, number, killer.done)
    print(found.measured)
    publish(HEADING, "gangs", [found], load)
    return int(found.met is False)


if __name__ == "__main__":
    sys.exit(main())
