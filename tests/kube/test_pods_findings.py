"""What is said of a run's pods before `up` is what the real scheduler and API server say of them.

The nodes are only objects. No kubelet is behind them, which does not matter to the scheduler.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.kube.api_server.read_only import read_only_api
from infra.kube.controllers.served import serves
from infra.kube.errors import ApiError
from infra.kube.paths import CLAIMS, DEFINITIONS, VOLUMES
from infra.kube.runs.attachments_findings import API_VERSION as MULTUS
from infra.kube.runs.attachments_findings import KIND as NETWORK
from infra.kube.runs.pods_findings import RunPods, pods_findings
from infra.names import ATTACHMENTS_ANNOTATION, CLAIM, GPU_RESOURCE, GPU_TOLERATION
from infra.storages.kind import claim_manifest
from tests.crds import definition
from tests.kube.accounts import viewer_of
from tests.kube.cluster_objects import made, phase_of, volume
from tests.kube.lab import LIMIT_SECONDS, Json, Lab, wait_for
from tests.kube.pool import NODES, POOL, ZONE, node, pod

SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
KEPT = {"key": GPU_RESOURCE, "effect": "NoSchedule"}  # keeps pods without GPUs away
LARGE = {"cpu": "8", "memory": "32Gi", GPU_RESOURCE: "4", "pods": "110"}
SMALL = {"cpu": "2", "memory": "4Gi", "pods": "110"}


@contextmanager
def nodes(lab: Lab, items: list[Json]) -> Iterator[None]:
    """Let the cluster have these nodes for the block, which begins when the scheduler knows them.

    Otherwise the scheduler might see a pod before the nodes, and find no room for it at first.
    """
    for item in items:
        lab.api.create(NODES, item)
    try:
        if items:  # it learns of nodes in the order of their creation
            wait_until_scheduled_on(lab, items[-1]["metadata"]["name"])
        yield
    finally:
        for item in items:
            lab.api.delete(f"{NODES}/{item['metadata']['name']}", {})


def wait_until_scheduled_on(lab: Lab, name: str) -> None:
    """Wait until the scheduler has put a pod on this node, and remove the pod.

    The pod asks for nothing and tolerates every taint, also that of a cordoned node.
    """
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    only = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    wanted = pod({}, {}, {"operator": "Exists"}, affinity={"nodeAffinity": only})
    path = f"/api/v1/namespaces/{lab.namespace()}/pods"
    path = f"{path}/{lab.api.create(path, wanted)['metadata']['name']}"
    wait_for("the scheduler", lambda: ((lab.api.get(path) or {}).get("spec") or {}).get("nodeName"))
    lab.api.delete(path, {"gracePeriodSeconds": 0})


def scheduled(lab: Lab, namespace: str, wanted: Json, pods: int) -> bool:
    """Return whether the scheduler finds a node for each of so many pods, and remove the pods."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    names = [lab.api.create(path, wanted)["metadata"]["name"] for _ in range(pods)]

    def verdicts() -> list[bool]:
        found: list[bool] = []
        for name in names:
            item = lab.api.get(f"{path}/{name}") or {}
            conditions = (item.get("status") or {}).get("conditions") or []
            by_type = {c["type"]: c["status"] for c in conditions}
            if "PodScheduled" in by_type:
                found.append(by_type["PodScheduled"] == "True")
        return found

    wait_for("a verdict on each pod", lambda: len(verdicts()) == pods)
    verdict = all(verdicts())
    for name in names:
        lab.api.delete(f"{path}/{name}", {"gracePeriodSeconds": 0})
    return verdict


@pytest.mark.parametrize(
    ("there", "requests", "tolerations", "pods", "said"),
    [
        ([LARGE], {"cpu": "8", GPU_RESOURCE: "4"}, [], 1, ""),
        ([LARGE, LARGE], {"cpu": "4", GPU_RESOURCE: "2"}, [], 4, ""),
        ([LARGE], {GPU_RESOURCE: "8"}, [], 1, "gpusPerPod: a pod asks for 8 nvidia.com/gpu"),
        ([SMALL], {GPU_RESOURCE: "1"}, [], 1, "Install NVIDIA's device plugin"),
        ([SMALL], {"memory": "5Gi"}, [], 1, "memoryPerRank: a pod asks for 5Gi memory"),
        ([SMALL], {"cpu": "2100m"}, [], 1, "cpuPerRank: a pod asks for 2100m cpu"),
        ([LARGE, SMALL], {GPU_RESOURCE: "2"}, [], 3, "pods: 3 cannot be used: the nodes have room"),
        ([LARGE, SMALL], {"cpu": "8", "memory": "33Gi"}, [], 1, "memoryPerRank"),
        ([(SMALL, SPOT)], {"cpu": "1"}, [], 1, "{key: spot, operator: Equal, value: true, effect"),
        ([(SMALL, SPOT)], {"cpu": "1"}, [{"key": "spot", "operator": "Exists"}], 1, ""),
        ([(SMALL, SPOT)], {"cpu": "1"}, [{"operator": "Exists"}], 1, ""),
        ([(SMALL, SPOT)], {"cpu": "1"}, [{**SPOT, "value": "no"}], 1, "tolerations: the pods"),
        ([(SMALL, {**SPOT, "effect": "PreferNoSchedule"})], {"cpu": "1"}, [], 1, ""),
        ([(SMALL, {"key": "gpu", "effect": "NoExecute"})], {"cpu": "1"}, [], 1, "operator: Exists"),
        ([(LARGE, KEPT)], {GPU_RESOURCE: "1"}, [GPU_TOLERATION], 1, ""),
        ([None], {"cpu": "1"}, [], 1, "cordoned"),
        ([], {"cpu": "1"}, [], 1, "nodeSelector: test.disttrain.dev/pool"),
    ],
)  # fmt: skip
def test_nodes_that_cannot_hold_the_pods_are_found_as_the_scheduler_finds_them(
    lab: Lab,
    there: list[Any],
    requests: dict[str, str],
    tolerations: list[Json],
    pods: int,
    said: str,
) -> None:
    """`up` refuses pods for which the scheduler finds no node, and accepts those for which it does.

    One sentence names the setting and the reason: the size of the nodes, their GPUs, their taints,
    or that they are cordoned.
    """
    namespace, pool = lab.namespace(), uuid.uuid4().hex[:8]
    items: list[Json] = []
    for each in there:
        offers, *taints = each if isinstance(each, tuple) else (each or SMALL,)
        items.append(node(pool, offers, *taints, cordoned=each is None))
    wanted = pod(requests, {POOL: pool}, *tolerations)
    with nodes(lab, items):
        found = pods_findings(lab.api, RunPods(namespace, wanted, pods, grows=False))
        assert scheduled(lab, namespace, wanted, pods) == (not said), found
    if said:
        (problem,) = found.problems
        assert said in problem
        assert problem.endswith("set clusterGrows: true")
    else:
        assert found.problems == []


def test_growing_cluster_refuses_nothing_for_its_nodes(lab: Lab) -> None:
    wanted = pod({GPU_RESOURCE: "8"}, {POOL: "nowhere"})
    found = pods_findings(lab.api, RunPods(lab.namespace(), wanted, 2, grows=True))
    assert found.problems == []
    assert found.notes[0].startswith("clusterGrows: new nodes have to come. nodeSelector:")


def test_devices_that_come_with_the_stack_are_not_missed(lab: Lab) -> None:
    pool = uuid.uuid4().hex[:8]
    wanted = pod({"cpu": "1", GPU_RESOURCE: "1"}, {POOL: pool})
    with nodes(lab, [node(pool, SMALL)]):
        later = RunPods(lab.namespace(), wanted, 1, grows=False, without=[GPU_RESOURCE])
        assert pods_findings(lab.api, later).problems == []


def refusal(lab: Lab, namespace: str, wanted: Json, pods: int = 1) -> str:
    """Return the only problem that is found, or an empty text.

    The client of the commands and that of the Pulumi program must find the same, and make nothing.
    """
    run = RunPods(namespace, wanted, pods, grows=False)
    found = pods_findings(lab.api, run)
    with read_only_api(lab.access(), LIMIT_SECONDS) as api:
        assert pods_findings(api, run) == found
    assert lab.api.list(f"/api/v1/namespaces/{namespace}/pods") == []
    return "".join(found.problems)


def test_limits_of_the_namespace_are_found_beforehand(lab: Lab) -> None:
    """`up` refuses pods that break a LimitRange, because the API server would refuse them later.

    Limits that the LimitRange adds to a pod without limits are named in a note.
    """
    namespace = lab.namespace()
    limits = [{"type": "Container", "max": {"memory": "1Gi"}, "min": {"cpu": "50m"}}]
    item = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"}}
    path = f"/api/v1/namespaces/{namespace}/limitranges"
    lab.api.create(path, {**item, "spec": {"limits": limits}})
    fits = pod({"cpu": "100m", "memory": "512Mi"}, {})
    larger = pod({"cpu": "100m", "memory": "2Gi"}, {})
    wait_for("the limits to hold", lambda: "memory" in refusal(lab, namespace, larger))
    assert refusal(lab, namespace, fits) == ""
    problem = refusal(lab, namespace, larger)
    assert problem.startswith("memoryPerRank: the cluster would refuse the training's pods")
    assert namespace in problem
    # Kubernetes gives a container without limits the most that it may have.
    run = RunPods(namespace, fits, 1, grows=False)
    (note,) = pods_findings(lab.api, run).notes
    assert note.startswith(f"namespace {namespace} gives each training pod limits")
    assert "asks for: 1Gi memory (a LimitRange)" in note


def test_quota_counts_all_pods_of_the_run(lab: Lab) -> None:
    """`up` refuses a run whose pods together ask for more than a quota allows.

    What others use of the quota now does not count, because they may give it back.
    """
    namespace = lab.namespace()
    hard = {"requests.cpu": "1", "pods": "3", f"requests.{GPU_RESOURCE}": "4"}
    lab.quota(namespace, "q", hard)
    assert refusal(lab, namespace, pod({"cpu": "100m"}, {}), 3) == ""
    problem = refusal(lab, namespace, pod({"cpu": "500m"}, {}), 3)
    assert problem.startswith("cpuPerRank: 3 pods with 500m cpu each: quota q of namespace")
    assert "allows 1 requests.cpu in all" in problem
    assert refusal(lab, namespace, pod({"cpu": "100m"}, {}), 4).startswith("pods: 4 cannot be used")


def test_quota_that_demands_limits_is_named(lab: Lab) -> None:
    """Where a quota demands limits, `up` says so, and names the settings that give the pods limits.

    Kubernetes' own words name only the memory. From them alone, `memoryPerRank` would be named,
    which changes no limit.
    """
    namespace = lab.namespace()
    hard = {"limits.cpu": "8", "limits.memory": "64Gi"}
    lab.quota(namespace, "q", hard)
    wanted = pod({"cpu": "100m", "memory": "1Gi"}, {})
    wait_for("the quota to hold", lambda: "must specify" in refusal(lab, namespace, wanted))
    problem = refusal(lab, namespace, wanted)
    assert problem.startswith("cpuLimitPerRank, memoryLimitPerRank: the cluster would refuse")
    assert "failed quota: q: must specify limits.cpu" in problem
    assert "`pulumi config set memoryLimitPerRank 16Gi`" in problem
    wanted["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2", "memory": "30Gi"}
    assert refusal(lab, namespace, wanted, 2) == ""
    problem = refusal(lab, namespace, wanted, 3)
    assert problem.startswith("memoryLimitPerRank: 3 pods with a limit of 30Gi memory each: quota")


def test_priority_class_that_is_missing_is_named(lab: Lab) -> None:
    wanted = pod({"cpu": "100m"}, {}, priorityClassName="nobody-made-this")
    problem = refusal(lab, lab.namespace(), wanted)
    assert problem.startswith("priorityClass: the cluster would refuse")
    assert "nobody-made-this" in problem


def test_second_network_that_the_cluster_lacks_is_named(lab: Lab) -> None:
    """`up` refuses pods with a second network of Multus that the cluster does not have. The kubelet
    would try to make such a pod for ever.
    """
    namespace = lab.namespace()
    wanted = pod({"cpu": "100m"}, {})
    wanted["metadata"]["annotations"] = {ATTACHMENTS_ANNOTATION: "fast"}
    assert "this cluster has no Multus" in refusal(lab, namespace, wanted)
    kind = definition("network-attachment-definitions.k8s.cni.cncf.io", NETWORK)
    kind["spec"]["scope"] = "Namespaced"
    with made(lab, DEFINITIONS, kind):
        wait_for("the kind", lambda: serves(lab.api, MULTUS, NETWORK))
        problem = refusal(lab, namespace, wanted)
        assert problem.startswith("network: the pods ask for the second network fast, and the name")
        network = {"apiVersion": MULTUS, "kind": NETWORK, "metadata": {"name": "fast"}}
        collection = f"/apis/{MULTUS}/namespaces/{namespace}/network-attachment-definitions"
        wait_for("the network", lambda: creates(lab, collection, network))
        assert refusal(lab, namespace, wanted) == ""


def creates(lab: Lab, collection: str, item: Json) -> bool:
    """Try to make an object of a kind whose handler the API server may not have begun yet."""
    try:
        lab.api.create(collection, item)
    except ApiError as refused:
        if refused.status != 404:
            raise
        return False
    return True


def test_namespace_that_is_made_later_refuses_nothing(lab: Lab) -> None:
    assert refusal(lab, "made-later", pod({"cpu": "100m"}, {})) == ""


def test_what_may_not_be_seen_is_said(lab: Lab, tmp_path: Path) -> None:
    """A user who may not list nodes is told that they were not checked; nothing is refused for
    that.
    """
    namespace = lab.namespace()
    somebody = viewer_of(lab, namespace, tmp_path, "edit", "rolebinding")
    wanted = pod({"cpu": "100m"}, {POOL: "nowhere"})
    run = RunPods(namespace, wanted, 1, grows=False)

    def is_said() -> bool:  # The binding takes effect a moment after it was made.
        found = pods_findings(somebody, run)
        return (
            found.problems == [] and len(found.notes) == 1 and "nodes have room" in found.notes[0]
        )

    wait_for("only the nodes to be unseen", is_said)


@pytest.mark.parametrize("zone", ["a", "b"])
def test_volume_of_another_zone_is_found_as_the_scheduler_finds_it(lab: Lab, zone: str) -> None:
    """`up` refuses a claim whose volume can only be used in a zone where no node is."""
    namespace, pool = lab.namespace(), uuid.uuid4().hex[:8]
    item = node(pool, LARGE)
    item["metadata"]["labels"][ZONE] = "a"
    disk = volume("", "ReadWriteMany")
    wanted_zone = {"key": ZONE, "operator": "In", "values": [zone]}
    terms = [{"matchExpressions": [wanted_zone]}]
    disk["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    claim = claim_manifest(namespace, "ReadWriteMany", "1Mi", volume=disk["metadata"]["name"])
    path = f"{CLAIMS.format(namespace)}/{CLAIM}"
    uses = [{"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}]
    wanted = pod({"cpu": "1"}, {POOL: pool}, volumes=uses)
    with nodes(lab, [item]), made(lab, VOLUMES, disk):
        lab.api.create(CLAIMS.format(namespace), claim)
        wait_for("the claim to be bound", lambda: phase_of(lab, path) == "Bound")
        found = pods_findings(lab.api, RunPods(namespace, wanted, 1, grows=False)).problems
        assert scheduled(lab, namespace, wanted, 1) == (not found), found
        lab.api.delete(path, {})
        wait_for("the end of the claim", lambda: lab.api.get(path) is None)
    assert bool(found) == (zone == "b")
    if found:
        name = disk["metadata"]["name"]
        assert f"storage: the volume {name} of the claim {CLAIM} can be used on nodes" in found[0]
        assert f"({ZONE} is a; compared were {item['metadata']['name']})" in found[0]
