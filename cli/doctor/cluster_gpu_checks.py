"""Checks of the GPUs that the cluster offers to pods, and of its GPU Operator by NVIDIA."""

from cli.check import Check, Fault, error, skip_unless, warning
from cli.doctor.cluster_facts import Pod, dynamic_gpus, nodes_of, pods_of
from cli.doctor.gpu_checks import gpus_wanted
from cli.facts import Facts, NotSeenError
from infra.node.expectations import Expectations

OPERATOR_NAMESPACE = "gpu-operator"


def gpus_allocatable(facts: Facts, expect: Expectations) -> Fault | str:
    """The nodes have room for every pod: all GPUs of a pod must be on one node."""
    gpus_wanted(expect)
    nodes = nodes_of(facts, expect.node_selector)
    usable = [node for node in nodes if node.takes_pods(expect.tolerated_taints)]
    if not usable:
        raise NotSeenError("no node takes pods; see node-schedulable")
    per_pod = expect.ranks // expect.pods
    most = max(usable, key=lambda node: node.gpus_offered)
    dynamic = sum(dynamic_gpus(facts).get(node.name, 0) for node in usable)
    if not most.gpus_offered and dynamic:
        raise NotSeenError(
            f"the nodes hand out {dynamic} GPUs by Dynamic Resource Allocation; `pulumi preview` "
            "says whether pods may ask for them"
        )
    see = "see operator-pods, and run: kubectl describe nodes (Allocatable, nvidia.com/gpu)"
    if most.gpus_offered < per_pod:
        return error(
            f"a pod asks for {per_pod} of nvidia.com/gpu, and no node offers that many: "
            f"{most.name} offers {most.gpus_offered}",
            f"{see}; or set gpusPerPod to {most.gpus_offered}" if most.gpus_offered else see,
        )
    room = sum(node.gpus_offered // per_pod for node in usable)
    if room < expect.pods:
        return error(
            f"the nodes have room for {room} of {expect.pods} pods with {per_pod} GPUs each",
            f"{see}; or set pods to {room}",
        )
    return f"there is room for {expect.pods} pods with {per_pod} GPUs each"


def gpu_sharing(facts: Facts, expect: Expectations) -> Fault | str:
    """Time slices do not count as GPUs, because NCCL refuses two ranks on one GPU."""
    gpus_wanted(expect)
    nodes = nodes_of(facts)
    physical = sum(node.gpu_count for node in nodes)
    for node in nodes:
        if node.gpu_replicas > 1 and node.gpu_count:
            if expect.ranks > physical:
                return error(
                    f"node {node.name} has {node.gpu_count} GPUs, {node.gpu_replicas} time slices "
                    f"each; {expect.ranks} ranks are asked for",
                    f"set gpusPerPod and pods so that there are at most {physical} ranks",
                )
            if expect.time_slices == 1:
                return warning(
                    f"node {node.name} shares each GPU {node.gpu_replicas} times, though the "
                    "settings do not ask for that",
                    "remove the device plugin's configuration, or set gpuTimeSlices if this stack "
                    "installs the GPU Operator",
                )
        if node.mig_strategy == "mixed" and not expect.mig:
            return warning(
                f"node {node.name} has MIG strategy mixed, which gives slices other resource names "
                "than nvidia.com/gpu",
                "set the operator's mig.strategy to single, or migProfile if this stack installs "
                "the GPU Operator",
            )
    return "whole GPUs"


def operator_pods(facts: Facts, expect: Expectations) -> Fault | str:
    """All pods of the GPU Operator run; the evidence names the first one that does not."""
    _operator_wanted(expect)
    pods = [pod for pod in pods_of(facts) if pod.namespace == OPERATOR_NAMESPACE]
    if not pods:
        return error(
            f"there is no pod in the namespace {OPERATOR_NAMESPACE}",
            "run `pulumi up` of the stack that owns the platform: it installs the GPU Operator",
        )
    failing = [pod for pod in pods if not _works(pod)]
    if failing:
        pod = failing[0]
        reason = " ".join(pod.waiting) or pod.unscheduled or pod.phase
        return error(
            f"{len(failing)} of {len(pods)} pods of the GPU Operator do not run; "
            f"{pod.name}: {reason}",
            f"kubectl -n {OPERATOR_NAMESPACE} logs {pod.name} --all-containers --tail=20",
        )
    return f"all {len(pods)} pods run"


def cluster_policy(facts: Facts, expect: Expectations) -> Fault | str:
    """The GPU Operator reports in the ClusterPolicy that it is ready."""
    _operator_wanted(expect)
    state = facts.one("cluster_policy")
    if state != "ready":
        return warning(
            f"ClusterPolicy is {state or 'without a state'}",
            f"wait some minutes; then run: kubectl -n {OPERATOR_NAMESPACE} get pods",
        )
    return state


def _operator_wanted(expect: Expectations) -> None:
    skip_unless(expect.gpus and expect.operator, "the GPU Operator is not used")


def _works(pod: Pod) -> bool:
    return pod.phase == "Succeeded" or (pod.phase == "Running" and pod.is_ready)


CLUSTER_GPU_CHECKS = (
    Check("gpus-allocatable", gpus_allocatable),
    Check("gpu-sharing", gpu_sharing),
    Check("operator-pods", operator_pods),
    Check("cluster-policy", cluster_policy),
)
