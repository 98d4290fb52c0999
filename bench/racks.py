"""Measures gangs whose pods must all be in one of many racks: `python -m bench.racks`, as root.

The nodes are fake (sandbox/fake_nodes.py). Kueue, the scheduler and the queue of a platform
(`queues.topology`) are real. Each gang asks for as many nodes as a rack has, and all of them must
be in one rack. The table goes to docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.node import cluster_lab
from bench.row import Row
from bench.table import publish
from infra.names import QUEUE_LABEL, REQUIRED_TOPOLOGY
from sandbox.controllers.controller import running
from sandbox.controllers.kueue import KUEUE
from sandbox.fake_nodes import set_fake_nodes
from tests.e2e.lab import NAMESPACE, Lab, wait_for

HEADING = "## Gangs in racks"
NODES, NODES_PER_RACK = 640, 16
QUEUE, RACK, HOST = "gpus", "example.com/rack", "kubernetes.io/hostname"
CPU = "90"  # of a node's 96, so that a node has room for one pod


@dataclass(frozen=True)
class Placed:
    """Where and when a gang was placed.

    Args:
        admitted: seconds from the gang's creation until Kueue let it start.
        scheduled: seconds from the gang's creation until its last pod had a node.
        racks: the racks in which its pods were.
    """

    admitted: float
    scheduled: float
    racks: frozenset[str]


@contextmanager
def queue(lab: Lab) -> Iterator[dict[str, str]]:
    """A platform whose queue knows the racks. Gives the name of each node's rack."""
    cluster = lab.cluster
    set_fake_nodes(cluster, NODES)
    racks = {f"fake-{number}": f"rack-{number // NODES_PER_RACK}" for number in range(NODES)}
    racks[cluster.node(1).name] = "rack-of-the-sandbox"  # every node needs a level's label
    for rack in sorted(set(racks.values())):
        names = [name for name, place in racks.items() if place == rack]
        lab.kubectl("label", "node", *names, f"{RACK}={rack}")
    made = {"queues.name": QUEUE, "queues.topology[0]": RACK, "queues.topology[1]": HOST}
    stack = lab.stack("bench-racks", "sandbox", {"topology": "none", **made})
    with running(cluster, [KUEUE]):
        stack.up()
        yield racks
        stack.destroy()


def gang(name: str) -> dict[str, object]:
    """A Job with a pod for each node of a rack. Its pods complete as soon as they run."""
    container = {
        "name": "work",
        "image": "localhost/absent",
        "resources": {"requests": {"cpu": CPU}},
    }
    pod = {
        "metadata": {"annotations": {REQUIRED_TOPOLOGY: RACK}},
        "spec": {
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE_LABEL: QUEUE}},
        "spec": {
            "suspend": True,
            "completionMode": "Indexed",
            "parallelism": NODES_PER_RACK,
            "completions": NODES_PER_RACK,
            "template": pod,
        },
    }


def place(lab: Lab, racks: dict[str, str], name: str) -> Placed:
    """Make a gang, and wait for its end."""
    given = lab.scratch / "gang.json"
    given.write_text(json.dumps(gang(name)))
    begin = time.monotonic()
    lab.kubectl("create", "-f", str(given))
    wait_for("its turn", lambda: not lab.get("job", name)["spec"].get("suspend"), 120, 0.05)
    admitted = time.monotonic() - begin

    def nodes() -> list[str]:
        items = lab.get("pods", "-l", f"batch.kubernetes.io/job-name={name}")["items"]
        found = [item["spec"].get("nodeName", "") for item in items]
        return found if len(found) == NODES_PER_RACK and all(found) else []

    found = wait_for("its pods", nodes, 120, 0.05)
    scheduled = time.monotonic() - begin
    wait_for("its end", lambda: lab.get("job", name)["status"].get("succeeded"), 120)
    print(f"{name}: admitted {admitted:.2f} s, scheduled {scheduled:.2f} s", flush=True)
    return Placed(admitted, scheduled, frozenset(racks[node] for node in found or ()))


def row(found: Sequence[Placed]) -> Row:
    """The row of the table. This function is pure."""
    together = sum(len(each.racks) == 1 for each in found)
    admitted = np.percentile([each.admitted for each in found], (50, 95))
    scheduled = np.percentile([each.scheduled for each in found], (50, 95))
    return Row(
        f"{len(found)} gangs of {NODES_PER_RACK} pods on {NODES} nodes in "
        f"{NODES // NODES_PER_RACK} racks, one after the other",
        "each in one rack",
        f"{together} of {len(found)} in one rack; admitted after p50 {admitted[0]:.2f} s, p95 "
        f"{admitted[1]:.2f} s, the last pod has a node after p50 {scheduled[0]:.2f} s, p95 "
        f"{scheduled[1]:.2f} s",
        together == len(found),
    )


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and return 1 if a gang was in more than one rack."""
    parser = argparse.ArgumentParser(prog="python -m bench.racks", description=__doc__)
    parser.add_argument(
        "--gangs", type=int, default=20, help="number of gangs (default: %(default)s)"
    )
    options = parser.parse_args(words)
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory() as scratch,
        cluster_lab(Path(scratch)) as lab,
        queue(lab) as racks,
    ):
        found = [place(lab, racks, f"gang-{number}") for number in range(options.gangs)]
        lab.kubectl("delete", "jobs", "--all", namespace=NAMESPACE)
    made = row(found)
    print(made.measured)
    publish(HEADING, "racks", [made], load)
    return int(made.met is False)


if __name__ == "__main__":
    sys.exit(main())
