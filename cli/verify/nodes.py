"""`disttrain verify --nodes`: a smoke test on each node where the run's pods may be placed."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from cli.check import Result
from cli.pod_answer import ask_by_pod
from cli.stack_outputs import VolumePlace
from cli.stack_pod import stack_pod
from cli.status.platform_status import gpus_held
from cli.verify import pod_probe
from cli.verify.evidence import result
from cli.verify.gpu_results import has_code_for
from infra.kube.api_server.api import Api
from infra.kube.errors import FORBIDDEN, ApiError, TaskError, UnreachableError
from infra.kube.files.beside_the_disk import access_modes
from infra.kube.files.task_pod import TaskPod, name_for
from infra.kube.objects import Json, is_true, machine_of, name_of, part
from infra.kube.paths import NODES, pod_path
from infra.kube.pods.dynamic_gpus import dynamic_gpus
from infra.kube.pods.room import taints_against
from infra.kube.pods.shared_gpus import offers_parts
from infra.kube.quantity import whole
from infra.kube.say import first_of
from infra.names import GPU_RESOURCE, GPU_TOLERATION, HOSTNAME_LABEL, MANY_NODES

MOST_AT_ONCE, MOST_NAMED = 8, 5
LIMIT_SECONDS = 1200
START_SECONDS = 300.0
DOCTOR = "./disttrain doctor names the cause"


@dataclass(frozen=True)
class NodeToTest:
    """A node, and how many GPUs the smoke test can use there.

    Args:
        name: the name of the node.
        gpus: the number of free GPUs; at most 1 if the GPUs are offered in parts.
        problem: why no pod is started there; empty if one is started.
        is_fault: whether the problem is a fault of the node.
        is_for_others: whether a taint of the node always keeps the pods of the stack away.
    """

    name: str
    gpus: int = 0
    problem: str = ""
    is_fault: bool = False
    is_for_others: bool = False


def nodes_to_test(
    nodes: Sequence[Json],
    pods: Iterable[Json],
    selector: Mapping[str, str],
    tolerations: Sequence[Mapping[str, Any]] = (),
    dynamic: Mapping[str, int] | None = None,
) -> list[NodeToTest]:
    """Return the nodes that match the run's node selector. This function is pure.

    `tolerations` are those of the run's pods, and `dynamic` the GPUs by Dynamic Resource
    Allocation, by the name of their node.
    """
    held = dict[str, int]()
    for pod in pods:
        where = machine_of(pod)
        held[where] = held.get(where, 0) + gpus_held(pod)
    found = list[NodeToTest]()
    for node in nodes:
        name, labels = name_of(node), part(node, "metadata", "labels")
        if any(labels.get(key) != value for key, value in selector.items()):
            continue
        offered = whole(part(node, "status", "allocatable").get(GPU_RESOURCE))
        free = offered - held.get(name, 0)
        if taints := taints_against(node, tolerations):
            problem = f"its taint {taints[0]['key']} keeps the pods of this stack away"
            found.append(NodeToTest(name, problem=problem, is_for_others=True))
        elif not is_true(node, "Ready"):
            found.append(NodeToTest(name, problem="it is not Ready", is_fault=True))
        elif part(node, "spec").get("unschedulable"):
            found.append(NodeToTest(name, problem="it is cordoned, so no pod may start there"))
        elif offered and free <= 0:
            problem = f"its {offered} GPUs are in use; their pods are checked without --nodes"
            found.append(NodeToTest(name, problem=problem))
        elif not offered and (count := (dynamic or {}).get(name, 0)):
            problem = (
                f"its {count} GPUs are handed out by Dynamic Resource Allocation, which is not "
                "tested here; those of a run's pods are checked without --nodes"
            )
            found.append(NodeToTest(name, problem=problem))
        else:
            # CUDA shows several parts of a GPU as one device, and so fewer than the pod was given.
            found.append(NodeToTest(name, min(free, 1) if offers_parts(node) else free))
    return found


def judge_node(node: NodeToTest, probe: Mapping[str, Any]) -> Result:
    """Judge the answer of the pod on a node. This function is pure."""
    id, gpus, torch = f"node {node.name}", probe["gpus"], probe["torch"]
    problem = probe["gpu_problem"] or probe["torch_problem"] or probe["compute_problem"]
    if problem:
        return result(id, "error", str(problem), DOCTOR)
    if not node.gpus:
        said = f"no GPUs offered; torch {probe['computed']} computes on the CPU"
        return result(id, "ok", said)
    if not len(gpus) == torch["devices"] == node.gpus:
        said = f"asked for {node.gpus} GPUs, nvidia-smi sees {len(gpus)}, torch {torch['devices']}"
        return result(id, "error", said, DOCTOR)
    kinds = sorted({f"{gpu['name']} ({gpu['capability']})" for gpu in gpus})
    for gpu in gpus:
        if not has_code_for(int(gpu["capability"].replace(".", "")), torch["architectures"]):
            built = ", ".join(torch["architectures"])
            said = f"torch was built for {built}, not for {gpu['name']} ({gpu['capability']})"
            return result(id, "error", said, "choose another torch by torchIndexUrl")
    said = f"{node.gpus} x {', '.join(kinds)}; torch {probe['computed']} computes on each"
    return result(id, "ok", said)


def check_nodes(api: Api, place: VolumePlace) -> list[Result]:
    """Start a pod on each node, MOST_AT_ONCE at a time, and judge its answer.

    Raises:
        ApiError: the cluster refuses to list nodes or pods.
        UnreachableError: the cluster does not answer.
    """
    selector = part(dict(place.placement), "nodeSelector")
    tolerations = place.placement.get("tolerations", [GPU_TOLERATION])
    listed = api.list(NODES), api.list("/api/v1/pods")
    found = nodes_to_test(*listed, selector, tolerations, dynamic_gpus(api))
    if not found:
        said = f"no node has the labels {dict(selector)}"
        return [result("nodes", "error", said, "change nodeSelector, or label a node")]
    if all(node.is_for_others for node in found):
        named = first_of([f"node {node.name}: {node.problem}" for node in found], MOST_NAMED)
        return [result("nodes", "error", named, "add the taint to the setting tolerations")]
    mounted = place if _many_nodes_mount(api, place) else replace(place, claim="")
    pods = [smoke_pod(mounted, node) for node in found]
    names = [name_for(pod) for pod in pods]
    with redirect_stdout(StringIO()), ThreadPoolExecutor(MOST_AT_ONCE) as threads:
        try:
            return list(threads.map(partial(_test, place), found, pods, names))
        # After Ctrl-C, the threads would still wait for their pods, which hold all free GPUs. So
        # the pods are removed here.
        except SystemExit:
            threads.shutdown(wait=False, cancel_futures=True)
            _remove(place, names)
            raise


def _many_nodes_mount(api: Api, place: VolumePlace) -> bool:
    """Whether several nodes can mount the volume; True if the claim may not be read.

    A disk that only one node can mount is where the training is, and keeps pods from other nodes.
    """
    modes = access_modes(api, place.namespace, place.claim)
    return not modes or MANY_NODES in modes


def _remove(place: VolumePlace, names: Iterable[str]) -> None:
    """Remove these pods, so that the threads end too. Pods that do not exist are no error."""
    api = Api(place.access, patience_seconds=0)
    for name in names:
        with suppress(ApiError, UnreachableError):  # the pod's thread removes it later
            api.delete(pod_path(place.namespace, name), {"gracePeriodSeconds": 1})


def smoke_pod(place: VolumePlace, node: NodeToTest) -> TaskPod:
    """Describe a pod with all free GPUs of one node. This function is pure."""
    pod = stack_pod(
        place,
        "verify",
        ("python3", "-c", Path(pod_probe.__file__).read_text(), str(node.gpus), "compute"),
        deadline_seconds=LIMIT_SECONDS,
        environment={"HOME": "/tmp"},
    )
    selector = {**part(pod.placement, "nodeSelector"), HOSTNAME_LABEL: node.name}
    placement: Json = {**pod.placement, "nodeSelector": selector}
    if node.gpus and place.runtime_class:
        placement["runtimeClassName"] = place.runtime_class
    return replace(pod, placement=placement, gpus=node.gpus)


def _test(place: VolumePlace, node: NodeToTest, pod: TaskPod, name: str) -> Result:
    id = f"node {node.name}"
    if node.problem:
        otherwise = "not applicable" if node.is_for_others else "not checked"
        return result(id, "error" if node.is_fault else otherwise, node.problem)
    api = Api(place.access)  # each thread needs its own connections
    try:
        probe, problem = ask_by_pod(
            api, pod, failed="the pod has failed", start_seconds=START_SECONDS, name=name
        )
    except (ApiError, TaskError, UnreachableError) as reason:
        said = f"no pod could run there: {reason}"
        if isinstance(reason, ApiError) and reason.status == FORBIDDEN:  # a right, or a quota
            return result(id, "not checked", said)
        return result(id, "error", said, DOCTOR)
    return result(id, "error", problem, DOCTOR) if problem else judge_node(node, probe)
