"""What a plan costs when the world grows to 1,000 ranks on 125 nodes.

`python -m bench.node` measures with it. The API server is real; the nodes are objects that say what
machines of 96 cores offer, and no kubelet is behind them. `pulumi preview` reads them to see
whether the pods have room.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.kube.access import Access
from infra.kube.api import Api
from sandbox.cache import locked
from sandbox.cluster import Cluster
from sandbox.cluster_commands import programs
from sandbox.dataset import training_text
from sandbox.fake_nodes import OFFERED
from tests.e2e.lab import Lab, run_settings
from tests.unit.stacks import deploy

Clock = Callable[[Callable[[], object]], float]
NODES, RANKS_PER_NODE = 125, 8
CLUSTER = "bench-plan"


def settings(pods: int, ranks: int) -> dict[str, str]:
    """Of a training whose pods are spread over nodes."""
    return {
        "topology": "indexed-job",
        "pods": str(pods),
        "processesPerPod": str(ranks),
        "run.train.global_batch_size": str(pods * ranks),
        "storageOptions.shared": "true",
        "podCidr": "10.244.0.0/16",
    }


def renderings(times: int, seconds: Clock) -> list[float]:
    """Seconds of the whole program for the large run, with an engine that answers at once."""
    large = nested(settings(NODES, RANKS_PER_NODE))
    with tempfile.TemporaryDirectory() as scratch:
        deploy("sandbox", Path(scratch), large)  # imports what it needs
        return [seconds(lambda: deploy("sandbox", Path(scratch), large)) for _ in range(times)]


def nested(plain: dict[str, str]) -> dict[str, object]:
    """Settings with paths such as `a.b` as the objects that Pulumi makes of them."""
    found: dict[str, object] = {}
    for path, value in plain.items():
        *folders, name = path.split(".")
        here: Any = found
        for folder in folders:
            here = here.setdefault(folder, {})
        here[name] = {"true": True}.get(value, int(value) if value.isdigit() else value)
    return found


@contextmanager
def many_nodes(scratch: Path) -> Iterator[Lab]:
    """A cluster with one real node and 125 objects."""
    with locked(f"{CLUSTER}-cluster"):
        cluster = Cluster(CLUSTER, programs())
        cluster.up()
        try:
            api = Api(Access(kubeconfig_path=str(cluster.kubeconfig)))
            for number in range(NODES):
                name = f"machine-{number}"
                node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
                api.create("/api/v1/nodes", node)
                offer = {"status": {"capacity": OFFERED, "allocatable": OFFERED}}
                api.patch(f"/api/v1/nodes/{name}/status", offer)
            yield Lab(cluster, scratch, training_text().path)
        finally:
            cluster.down(purge=True)


def previews(scratch: Path, times: int, seconds: Clock) -> list[float]:
    """Seconds by which `pulumi preview` of 1,000 ranks takes longer than that of 3 ranks; pairs."""
    with many_nodes(scratch) as lab:
        small, large = (
            lab.stack(f"bench-{pods}", "sandbox", {**run_settings("bench", 20), **more})
            for pods, more in ((3, settings(3, 1)), (NODES, settings(NODES, RANKS_PER_NODE)))
        )
        small.preview()  # compiles Python's files
        return [seconds(large.preview) - seconds(small.preview) for _ in range(times)]
