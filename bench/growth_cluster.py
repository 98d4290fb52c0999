"""A cluster of 126 nodes for `bench.growth`, and the settings of runs on 125 of them.

Those 125 nodes are fake (sandbox/fake_nodes.py). A pod of a Job on them completes as soon as it has
a node, so the data set's Job and the training's Job are complete at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox.cache import locked
from sandbox.cluster import Cluster
from sandbox.cluster_commands import programs
from sandbox.dataset import training_text
from sandbox.fake_nodes import MARK, TAINT, set_fake_nodes
from sandbox.stack import Stack
from tests.e2e.lab import Lab, run_settings

CLUSTER = "bench-growth"
NODES, RANKS_PER_NODE = 125, 8
SMALL, LARGE = (3, 1), (NODES, RANKS_PER_NODE)
"""How many pods the small and the large run have, and how many ranks each pod has."""


def settings_of(topology: str, pods: int, ranks: int) -> dict[str, str]:
    """The settings of a training whose pods may run on any number of nodes."""
    wanted = {
        "topology": topology,
        "pods": str(pods),
        "processesPerPod": str(ranks),
        "run.train.global_batch_size": str(pods * ranks),
        "storageOptions.shared": "true",
        "podCidr": "10.244.0.0/16",
    }
    if topology == "single-pod":
        del wanted["pods"]
        wanted["processesPerPod"] = str(pods * ranks)
    return wanted


def nested(plain: dict[str, str]) -> dict[str, object]:
    """The nested objects that Pulumi makes of settings with paths such as `a.b`."""
    found: dict[str, object] = {}
    for path, value in plain.items():
        *folders, name = path.split(".")
        here: Any = found
        for folder in folders:
            here = here.setdefault(folder, {})
        here[name] = {"true": True}.get(value, int(value) if value.isdigit() else value)
    return found


def on_fake_nodes(pods: int, ranks: int) -> dict[str, str | None]:
    """The settings of a run on the fake nodes. No image and no file is sent, since no pod runs."""
    return {
        **run_settings("growth", 20),
        **settings_of("indexed-job", pods, ranks),
        "datasetFile": None,  # so the preset's address holds, from which nothing downloads
        f'nodeSelector["{MARK}"]': TAINT["value"],
        "tolerations[0].key": MARK,
        "tolerations[0].operator": "Exists",
        "extensions[0]": "tests.e2e.toy_kinds",
        "imageDelivery": "toy-present",
    }


def stack_of(lab: Lab, pods: int, ranks: int) -> Stack:
    """A stack for a run of `pods` pods with `ranks` ranks each. Nothing of the run is made yet."""
    return lab.stack(f"bench-growth-{pods}", "sandbox", on_fake_nodes(pods, ranks))


@contextmanager
def many_nodes(scratch: Path) -> Iterator[Lab]:
    """The cluster with its fake nodes; it is removed after the block."""
    with locked(f"{CLUSTER}-cluster"):
        cluster = Cluster(CLUSTER, programs())
        cluster.down(purge=True)
        cluster.up()
        try:
            set_fake_nodes(cluster, NODES)
            yield Lab(cluster, scratch, training_text().path)
        finally:
            cluster.down(purge=True)
