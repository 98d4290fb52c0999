"""Adds fake nodes to a cluster, to test it with many nodes.

kwok (https://kwok.sigs.k8s.io) stands in for their kubelets. The API server, the scheduler and the
controllers treat fake nodes as they treat real ones, and kwok reports that each pod on them runs.
No process runs there: such pods have no logs, no command can be run in them, and a pod of a Job
completes at once. The nodes have a taint, so that only pods that tolerate it are scheduled there.
"""

import json

from sandbox.cluster import Cluster
from sandbox.processes import Component
from sandbox.toolchain import tool_folder
from sandbox.tools.services import FAKE_NODES

NAME = "kwok"
MARK = "kwok.x-k8s.io/node"
MOST_FAKE_NODES = 1000
TAINT = {"key": MARK, "value": "fake", "effect": "NoSchedule"}
OFFERED = {"cpu": "96", "memory": "1Ti", "pods": "110", "ephemeral-storage": "1Ti"}
STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)


def set_fake_nodes(cluster: Cluster, count: int) -> None:
    """Let the cluster have `count` fake nodes; 0 removes all of them. Builds kwok the first time.

    Raises:
        ValueError: the number is not possible.
        RuntimeError: the cluster is down, or kwok has ended.
        TimeoutError: the nodes do not become ready.
    """
    if not 0 <= count <= MOST_FAKE_NODES:
        raise ValueError(f"{count} nodes are not possible: use 0 to {MOST_FAKE_NODES}")
    node = cluster.node(1)
    if node.link is None:
        raise RuntimeError(f"cluster {cluster.name} is down: run `up` first")
    wanted = [f"fake-{number}" for number in range(count)]
    there = _ready_by_name(cluster)
    if gone := [name for name in there if name not in wanted]:
        cluster.run_kubectl("delete", "node", *gone)
    if not count:
        node.end(NAME)
        return
    if node.ended([NAME]):
        folder = tool_folder(FAKE_NODES)
        rules = (f"--config={folder / 'stage' / file}" for file in STAGES)
        words = (
            str(folder / "kwok"),
            f"--kubeconfig={cluster.kubeconfig}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={MARK}=fake",
            "--node-lease-duration-seconds=40",
            *rules,
        )
        node.start([Component(NAME, words)])
    items = [_node(name) for name in wanted if name not in there]
    if items:
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        cluster.run_kubectl("create", "-f", "-", given=given)
    node.wait(f"{count} nodes that do not exist", lambda: _missing(cluster, wanted))


def _node(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {MARK: "fake"},
            "labels": {
                MARK: "fake",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "spec": {"taints": [TAINT]},
        "status": {"capacity": OFFERED, "allocatable": OFFERED},
    }


def _ready_by_name(cluster: Cluster) -> dict[str, bool]:
    found = cluster.run_kubectl("get", "nodes", "-l", f"{MARK}=fake", "-o", "json")
    return {
        item["metadata"]["name"]: any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in item["status"].get("conditions", ())
        )
        for item in json.loads(found)["items"]
    }


def _missing(cluster: Cluster, wanted: list[str]) -> str | None:
    ready = _ready_by_name(cluster)
    waits = [name for name in wanted if not ready.get(name)]
    return f"{len(waits)} of them are not ready" if waits else None
