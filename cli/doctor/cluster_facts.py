"""Nodes and pods of the cluster, read from the facts of scripts/facts-cluster.sh."""

from collections.abc import Collection
from dataclasses import dataclass

from cli.facts import Facts, NotSeenError
from infra.kube.controllers.programs_of_runs import parse_pairs
from infra.kube.objects import Json
from infra.kube.quantity import whole


@dataclass(frozen=True)
class Node:
    """A node of the cluster.

    `conditions` are texts such as `Ready:True`, and `taints` are texts `key:effect`. `gpus_offered`
    is how many `nvidia.com/gpu` pods can ask for. The other fields about GPUs, and `mig_strategy`,
    are labels of the node. `is_selected` says whether the node has the labels of the setting
    `nodeSelector`.
    """

    name: str
    conditions: tuple[str, ...]
    cordoned: bool
    taints: tuple[str, ...]
    gpus_offered: int
    gpu_count: int
    gpu_replicas: int
    mig_strategy: str
    is_selected: bool

    @property
    def is_ready(self) -> bool:
        """Whether the kubelet reports the node as ready."""
        return "Ready:True" in self.conditions

    def blocking_taint(self, tolerated: tuple[str, ...]) -> str:
        """The first taint (`key:effect`) that keeps our pods away; empty if there is none."""
        for taint in self.taints:
            key, _, effect = taint.partition(":")
            if effect != "PreferNoSchedule" and key not in tolerated and "*" not in tolerated:
                return taint
        return ""

    def takes_pods(self, tolerated: tuple[str, ...]) -> bool:
        """Whether the scheduler places pods with these tolerations on the node."""
        return self.is_selected and not self.cordoned and not self.blocking_taint(tolerated)


@dataclass(frozen=True)
class Pod:
    """A pod of the cluster.

    `waiting` has the reason of each container that waits. `unscheduled` is the scheduler's message
    if it has found no node for the pod. `k8s_app` is the pod's label `k8s-app`.
    """

    namespace: str
    name: str
    phase: str
    is_ready: bool
    waiting: tuple[str, ...]
    unscheduled: str
    k8s_app: str


def require_api(facts: Facts) -> None:
    """Make sure that the API server has answered.

    Raises:
        NotSeenError: it has not answered, so nothing is known about objects in the cluster.
    """
    if facts.one("api") != "ok":
        raise NotSeenError("the API server does not answer; see api-server")


def nodes_of(facts: Facts, selector: Collection[str] = ()) -> list[Node]:
    """Return all nodes of the cluster; there is at least one.

    Args:
        facts: the facts of the cluster.
        selector: the labels of the setting `nodeSelector`, as `key=value`.

    Raises:
        NotSeenError: the nodes, or those with these labels, could not be listed.
    """
    require_api(facts)
    facts.all("nodes")
    facts.one("node")
    if selector:
        facts.one("selected_nodes")
    selected = set(facts.all("selected_node"))
    return [
        Node(
            name,
            conditions=tuple(conditions.split()),
            cordoned=bool(cordoned),
            taints=tuple(taints.split()),
            gpus_offered=whole(offered),
            gpu_count=_number(count),
            gpu_replicas=_number(replicas, default=1),
            mig_strategy=strategy,
            is_selected=not selector or name in selected,
        )
        for name, conditions, cordoned, taints, offered, count, replicas, strategy in facts.rows(
            "node", 8
        )
    ]


def dynamic_gpus(facts: Facts) -> dict[str, int]:
    """Return how many GPUs each node hands out by Dynamic Resource Allocation, by its name.

    It is empty if the lists of such devices could not be read: older clusters have none.
    """
    names = dict[str, set[str]]()
    for value in facts.values.get("gpu_slice", []):
        node, _, devices = value.partition("|")
        names.setdefault(node, set()).update(devices.split())
    return {node: len(devices) for node, devices in names.items()}


def pods_of(facts: Facts) -> list[Pod]:
    """Return the pods of disttrain's namespace, of the GPU Operator and of the cluster's DNS.

    Raises:
        NotSeenError: the pods could not be listed.
    """
    require_api(facts)
    for listing in ("pods", "operator_pods", "dns_pods"):
        facts.all(listing)
    pods: list[Pod] = []
    for full_name, phase, ready, waiting, unscheduled, app in facts.rows("pod", 6):
        namespace, _, name = full_name.partition("/")
        reasons = tuple(waiting.split())
        pods.append(Pod(namespace, name, phase, ready == "True", reasons, unscheduled, app))
    return pods


def deployments_of(facts: Facts) -> list[Json]:
    """Return the names, labels and available pods of all Deployments, in the form of the API.

    Raises:
        NotSeenError: the Deployments of all namespaces could not be listed.
    """
    require_api(facts)
    facts.all("deployments")
    found: list[Json] = []
    for full_name, available, labels in facts.rows("deployment", 3):
        namespace, _, name = full_name.partition("/")
        about = {"namespace": namespace, "name": name, "labels": dict(parse_pairs(labels))}
        found.append({"metadata": about, "status": {"availableReplicas": _number(available)}})
    return found


def _number(text: str, default: int = 0) -> int:
    return int(text) if text.isdigit() else default
