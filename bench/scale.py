"""Measures `./disttrain status` of a large run: `python -m bench.scale`, as root.

A real run of eight pods trains on the sandbox's node, because `status` reads the log lines of eight
pods at most. Beside it are pods with the same labels on fake nodes, which kwok reports as running
(sandbox/fake_nodes.py). The table goes to docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.node import cluster_lab
from bench.row import Row
from bench.table import publish
from cli.status.snapshot import MOST_LOGS as REAL_PODS
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.objects import is_true
from infra.kube.record import record_path
from infra.labels import OWNER_LABEL
from sandbox.fake_nodes import set_fake_nodes
from sandbox.stack import Stack
from tests.e2e.asking import people_run, states
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for

HEADING = "## Size"
STACK = "bench-scale"
SIZES = ((64, 64, 2.0), (1000, 125, 5.0))
"""For each row: the number of pods, the number of fake nodes, and the bar in seconds."""
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
KEPT_LABELS = ("apps.kubernetes.io/", "statefulset.kubernetes.io/", "controller-revision-hash")


def further_pod(real: dict[str, Any], owner: dict[str, Any], number: int, nodes: int) -> Any:
    """A pod like a real one, on a fake node.

    Args:
        real: a real training pod.
        owner: an object that the new pod belongs to, so that no controller adopts it.
        number: the number of the new pod.
        nodes: how many fake nodes there are.
    """
    labels = real["metadata"]["labels"].items()
    (container,) = real["spec"]["containers"]
    kept = {key: container[key] for key in ("name", "image", "args", "env", "resources")}
    return {
        "metadata": {
            "name": f"training-{number}",  # its name sorts after the real pods' names
            "labels": {name: value for name, value in labels if not name.startswith(KEPT_LABELS)},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {
            "nodeName": f"fake-{number % nodes}",
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
            "containers": [kept],
        },
    }


def add_pods(lab: Lab, api: Api, first: int, count: int, nodes: int) -> None:
    """Add `count` pods on fake nodes, and wait until kwok reports all of them as ready."""
    real = lab.get("pod", "train-multipod-1")
    owner = api.get(record_path(NAMESPACE, real["metadata"]["labels"][OWNER_LABEL]))
    assert owner is not None
    for number in range(first, first + count):
        api.create(PODS, further_pod(real, owner, number, nodes))

    wanted = first + count + REAL_PODS

    def ready() -> bool:
        return sum(is_true(pod, "Ready") for pod in api.list(PODS)) == wanted

    wait_for(f"{count} more pods", ready, 300)


def status_row(lab: Lab, stack: Stack, pods: int, nodes: int, bar: float, times: int) -> Row:
    """The row of the time from the start of `status` to its end, as its user sees it."""
    status, seconds = f"./disttrain status --stack {stack.name}", list[float]()
    for _ in range(times):
        begin = time.monotonic()
        people_run(lab, stack, status)
        seconds.append(time.monotonic() - begin)
    if (state := states(lab, stack, nodes=nodes + 1)[STACK]) != "training":
        raise RuntimeError(f"the run is {state}: {people_run(lab, stack, status)}")
    middle = statistics.median(seconds)
    return Row(
        f"`./disttrain status` of a run with {pods} pods on {nodes + 1} nodes",
        f"<= {bar:g} s",
        f"{middle:.2f} s, median of {times}: {min(seconds):.2f} to {max(seconds):.2f}",
        middle <= bar,
    )


def main(words: Sequence[str] | None = None) -> int:
    """Measure all rows, and return 1 if a bar is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument(
        "--times",
        type=int,
        default=7,
        help="how often `status` of each size is timed (default: %(default)s)",
    )
    options = parser.parse_args(words)
    load, rows = os.getloadavg()[0], list[Row]()
    with tempfile.TemporaryDirectory() as scratch, cluster_lab(Path(scratch)) as lab:
        api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))
        settings = {"topology": "multi-pod", "pods": str(REAL_PODS), "processesPerPod": "1"}
        stack = lab.stack(STACK, "sandbox", {**run_settings(STACK, ENDLESS), **settings})
        stack.up()
        there = 0
        for pods, nodes, bar in SIZES:
            set_fake_nodes(lab.cluster, nodes)
            add_pods(lab, api, there, pods - REAL_PODS - there, nodes)
            there = pods - REAL_PODS
            rows.append(status_row(lab, stack, pods, nodes, bar, options.times))
            print(rows[-1].measured, flush=True)
    publish(HEADING, "size", rows, load)
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
