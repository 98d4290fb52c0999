"""`verify` of nodes: which nodes get a smoke test, the pod of the test, and what its answer
means.
"""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cli.check import Result
from cli.stack_outputs import VolumePlace
from cli.verify import nodes
from cli.verify.nodes import NodeToTest, check_nodes, judge_node, nodes_to_test, smoke_pod
from infra.kube.api_server.access import Access
from infra.kube.errors import ApiError, TaskError
from infra.kube.files.task_pod import TaskPod, pod_manifest
from infra.kube.objects import name_of
from tests.cli.resource_slices import slice_of

GPU = {"name": "H100", "capability": "9.0", "busy_percent": 0, "memory_mib": 0}
GOOD: dict[str, Any] = {
    "gpus": [GPU, GPU],
    "gpu_problem": "",
    "torch": {"devices": 2, "architectures": ["sm_90"]},
    "torch_problem": "",
    "computed": "2.7.1",
    "compute_problem": "",
}
ON_CPU = {**GOOD, "gpus": [], "torch": {}}
PLACE = VolumePlace(
    access=Access(kubeconfig_path="none"),
    namespace="ns",
    owner="me",
    image="trainer:1",
    claim="data",
    runs_path="/data/runs",
    placement={"nodeSelector": {"pool": "gpu"}},
    runtime_class="nvidia",
)


def node(name: str, gpus: int = 0, ready: str = "True", **more: Any) -> dict[str, Any]:
    """Return a node that offers so many GPUs."""
    taints = [{"key": key, "effect": "NoSchedule"} for key in more.get("taints", ())]
    return {
        "metadata": {"name": name, "labels": more.get("labels", {})},
        "spec": {"unschedulable": more.get("cordoned", False), "taints": taints},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)} if gpus else {},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def pod(where: str, gpus: int, phase: str = "Running") -> dict[str, Any]:
    """Return a pod on this node that holds so many GPUs."""
    limits = {"nvidia.com/gpu": str(gpus)}
    spec = {"nodeName": where, "containers": [{"resources": {"limits": limits}}]}
    return {"spec": spec, "status": {"phase": phase}}


def test_only_free_gpus_of_matching_nodes_are_asked_for() -> None:
    """A smoke test asks only for GPUs that no pod holds, on nodes that the platform's pods may use.
    It never takes a GPU from a training. A pod that has ended holds none.
    """
    there = [
        node("a", 8, labels={"pool": "gpu"}),
        node("b", 2, labels={"pool": "gpu"}),
        node("c", 2, labels={"pool": "cpu"}),
        node("d", labels={"pool": "gpu"}),
    ]
    pods = [pod("a", 6), pod("a", 2, "Succeeded"), pod("b", 2)]
    found = nodes_to_test(there, pods, {"pool": "gpu"})
    assert [(entry.name, entry.gpus) for entry in found] == [("a", 2), ("b", 0), ("d", 0)]
    assert "its 2 GPUs are in use" in found[1].problem
    assert not found[1].is_fault
    assert found[0].problem == found[2].problem == ""


@pytest.mark.parametrize(
    ("product", "asked"),
    [
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", 1),
        ("Tesla-T4-SHARED", 1),
        ("NVIDIA-H100-80GB-HBM3", 7),
    ],
)
def test_one_part_of_gpus_is_tested(product: str, asked: int) -> None:
    """On a node whose GPUs are divided into MIG instances, or shared by time slices, the smoke test
    asks for one part. CUDA shows several parts of a GPU as one device, so a healthy node would be
    called a faulty one.
    """
    there = [node("a", 7, labels={"nvidia.com/gpu.product": product})]
    (found,) = nodes_to_test(there, [], dict[str, str]())
    assert found == NodeToTest("a", asked)


def test_node_that_cannot_take_pods_is_named() -> None:
    """A node that is not ready is a fault. A cordoned node is only named."""
    away, cordoned = nodes_to_test(
        [node("a", ready="False"), node("b", cordoned=True)], [], dict[str, str]()
    )
    assert (away.problem, away.is_fault) == ("it is not Ready", True)
    assert "cordoned" in cordoned.problem
    assert not cordoned.is_fault


@pytest.mark.parametrize(
    ("tolerations", "tested"),
    [
        (None, ["worker"]),
        ([{"key": "team-b", "operator": "Exists"}], ["of-team-b"]),
        ([{"operator": "Exists"}], ["control-plane", "worker", "of-team-b"]),
    ],
)
def test_node_whose_taint_keeps_pods_away_is_not_tested(
    tolerations: list[Any] | None, tested: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pod of the stack is ever placed on a node with a taint that they do not tolerate, such as
    the control plane of most clusters. A pod there would be waited for in vain for five minutes,
    and called a fault of the node. The taint is named instead, and is no finding.
    """
    there = [
        node("control-plane", taints=["node-role.kubernetes.io/control-plane"]),
        node("worker", 2, taints=["nvidia.com/gpu"]),
        node("of-team-b", 2, taints=["team-b"]),
    ]
    found = {each.id: each for each in _checked(there, tolerations, monkeypatch)}
    assert [name for name in map(name_of, there) if found[f"node {name}"].status == "ok"] == tested
    others = [each for each in found.values() if each.status != "ok"]
    assert all(each.status == "not applicable" and "its taint" in each.evidence for each in others)


def test_stack_that_no_node_takes_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """If each node has such a taint, nothing was tested, which is a finding."""
    there = [node("a", taints=["team-a"]), node("b", taints=["team-b"])]
    *_, last = _checked(there, None, monkeypatch)
    assert (last.id, last.status) == ("nodes", "error")
    assert "taint" in last.evidence


def test_refusal_of_the_pod_is_no_fault_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without the right to make pods, or whose quota is used up, learns nothing about the
    nodes, so none of them is called faulty. A pod that does not start is a fault.
    """
    said = {"a": ApiError(403, "you cannot create pods"), "b": TaskError("waited 300 s")}

    def ask(_: Any, pod: TaskPod, **__: Any) -> None:
        raise said[pod.placement["nodeSelector"]["kubernetes.io/hostname"]]

    first, second = _checked([node("a"), node("b")], None, monkeypatch, ask=ask)
    assert (first.status, first.fix) == ("not checked", "")
    assert "you cannot create pods" in first.evidence
    assert second.status == "error"


@pytest.mark.parametrize(
    ("modes", "mounts"),
    [(["ReadWriteOnce"], False), (["ReadWriteOncePod"], False), (["ReadWriteMany"], True)],
)
def test_disk_of_another_node_keeps_no_node_from_its_test(
    modes: list[str], mounts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of a claim that one node can mount is where the training is. A pod that asks for it
    elsewhere never starts, and that is no fault of the node. A volume of many nodes is mounted, so
    that a node that cannot is found.
    """
    started = list[TaskPod]()
    claim = {"spec": {"accessModes": modes}}
    _checked([node("a"), node("b")], None, monkeypatch, claim=claim, started=started)
    assert len(started) == 2
    for pod in started:
        spec = pod_manifest(pod, "x")["spec"]
        (container,) = spec["containers"]
        assert bool(spec["volumes"]) is bool(container["volumeMounts"]) is mounts


def test_gpus_without_a_device_plugin_are_not_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that hands out its GPUs by Dynamic Resource Allocation offers none by a device plugin.
    A test pod asks for none of them, and that is said of the node. It was said to offer no GPUs.
    """
    listed = {"items": [slice_of("a", {"gpu-0": "gpu", "gpu-1": "gpu"})]}
    first, second = _checked([node("a"), node("b")], None, monkeypatch, claim=listed)
    assert (first.id, first.status) == ("node a", "not checked")
    assert "its 2 GPUs are handed out by Dynamic Resource Allocation" in first.evidence
    assert (second.status, second.evidence.partition(";")[0]) == ("ok", "no GPUs offered")


def _checked(
    there: list[Any],
    tolerations: list[Any] | None,
    monkeypatch: pytest.MonkeyPatch,
    *,
    claim: dict[str, Any] | None = None,
    started: list[TaskPod] | None = None,
    ask: Any = None,
) -> list[Result]:
    """Return the results for these nodes. Without `ask`, each of them answers that all is well.

    The pods that were started on them are added to `started`.
    """

    def all_is_well(_: Any, pod: TaskPod, **__: Any) -> tuple[dict[str, Any], str]:
        if started is not None:
            started.append(pod)
        return {**GOOD, "gpus": [GPU] * pod.gpus}, ""

    monkeypatch.setattr(nodes, "Api", lambda _: None)
    monkeypatch.setattr(nodes, "ask_by_pod", ask or all_is_well)
    placement = {} if tolerations is None else {"tolerations": tolerations}
    api: Any = SimpleNamespace(
        list=lambda path: there if path.endswith("nodes") else [], get=lambda _: claim
    )
    return check_nodes(api, replace(PLACE, placement=placement))


@pytest.mark.parametrize(
    ("gpus", "probe", "status", "words"),
    [
        (2, GOOD, "ok", "2 x H100 (9.0); torch 2.7.1 computes on each"),
        (0, ON_CPU, "ok", "no GPUs offered; torch 2.7.1 computes on the CPU"),
        (4, GOOD, "error", "asked for 4 GPUs, nvidia-smi sees 2, torch 2"),
        (2, {**GOOD, "torch": {**GOOD["torch"], "devices": 0}}, "error", "torch 0"),
        (2, {**GOOD, "gpu_problem": "there is no nvidia-smi"}, "error", "no nvidia-smi"),
        (2, {**GOOD, "compute_problem": "cuda:1: 3 of"}, "error", "cuda:1: 3 of"),
        (
            2,
            {**GOOD, "torch": {"devices": 2, "architectures": ["sm_80"]}},
            "error",
            "torch was built for sm_80, not for H100 (9.0)",
        ),
    ],
)
def test_answer_of_a_node_is_judged(
    gpus: int, probe: dict[str, Any], status: str, words: str
) -> None:
    """A node is ok if nvidia-smi and torch see all its GPUs and torch computes on each. Otherwise
    it is wrong, with the reason and a fix.
    """
    found = judge_node(NodeToTest("a", gpus), probe)
    assert (found.id, found.status) == ("node a", status)
    assert words in found.evidence
    assert bool(found.fix) == (status == "error")


def test_smoke_pod_stands_on_its_node_with_its_gpus() -> None:
    """The pod of a smoke test runs on its node, with the platform's placement and runtime class,
    and with the node's GPUs if there are any.
    """
    made = pod_manifest(smoke_pod(PLACE, NodeToTest("a", 2)), "x")["spec"]
    assert made["nodeSelector"] == {"pool": "gpu", "kubernetes.io/hostname": "a"}
    assert made["runtimeClassName"] == "nvidia"
    assert made["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    made = pod_manifest(smoke_pod(replace(PLACE, placement={}), NodeToTest("a")), "x")["spec"]
    assert made["nodeSelector"] == {"kubernetes.io/hostname": "a"}
    assert "runtimeClassName" not in made
    assert "limits" not in made["containers"][0]["resources"]


@pytest.mark.timeout(60)
def test_ctrl_c_removes_the_pods_that_hold_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C, `verify` removes the pods of all smoke tests at once. Otherwise it would wait
    for them for up to 20 minutes, and after a second Ctrl-C they would keep their GPUs.
    """
    asked, removed = list[str](), list[str]()
    both_ask, is_removed = threading.Barrier(2), threading.Event()

    class Cluster:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def list(self, path: str) -> list[Any]:
            return [node("a", 2), node("b", 2)] if path.endswith("nodes") else []

        def get(self, _: str) -> None: ...

        def delete(self, path: str, _: Any) -> None:
            removed.append(path)
            is_removed.set()

    def ask(_: Any, pod: TaskPod, **more: Any) -> tuple[dict[str, Any], str]:
        asked.append(f"/api/v1/namespaces/ns/pods/{more['name']}")
        both_ask.wait()
        if pod.placement["nodeSelector"]["kubernetes.io/hostname"] == "a":
            raise SystemExit(130)  # as by Ctrl-C in the main thread
        is_removed.wait()
        return {}, "it was removed"

    monkeypatch.setattr(nodes, "Api", Cluster)
    monkeypatch.setattr(nodes, "ask_by_pod", ask)
    api: Any = Cluster()
    with pytest.raises(SystemExit, match=r"^130$"):
        check_nodes(api, replace(PLACE, placement={}))
    assert len(set(asked)) == 2
    assert sorted(removed) == sorted(asked)
