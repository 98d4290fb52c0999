"""Finds out whether Kueue counts other machines than those on which the pods of a run are.

For a run in a queue with a topology, Kueue chooses the machines, and writes them into the pods and
into its Workload. If a machine is silent for 30 seconds, Kueue before version 0.19 chooses another
one for its pod. If the machine then comes back with the pod alive, Kueue goes on counting the wrong
machine (https://github.com/kubernetes-sigs/kueue/issues/12735).
"""

from collections import Counter
from collections.abc import Sequence

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.objects import Json, is_running, label, part, parts
from infra.kube.queues.kueue import kueue_workload
from infra.names import HOSTNAME_LABEL, QUEUE_LABEL, TOPOLOGY_ANNOTATIONS


def words_of_machines(api: Api, namespace: str, item: Json, pods: Sequence[Json]) -> str:
    """The message about pods on other machines than Kueue counts.

    The text is empty if there are none, or if these credentials may not read Kueue's Workload.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        item: the run's workload.
        pods: the pods of the run's training.
    """
    assigned = [pod for pod in pods if _is_assigned(pod)]
    if not assigned or not label(item, QUEUE_LABEL):
        return ""
    try:
        own = kueue_workload(api, namespace, item)
    except (ApiError, TaskError, UnreachableError):  # The Workload cannot be read.
        return ""
    return words_of_other_machines(own, assigned) if own else ""


def words_of_other_machines(own: Json, pods: Sequence[Json]) -> str:
    """The message about running pods on other machines than Kueue counts; empty: none.

    This function is pure.

    Args:
        own: Kueue's Workload of the run.
        pods: the running pods for which Kueue has chosen machines.
    """
    counted = assigned_machines(own)
    real = Counter(str(part(pod, "spec", "nodeSelector")[HOSTNAME_LABEL]) for pod in pods)
    elsewhere = sorted((real - counted).elements())
    if not counted or not elsewhere:
        return ""
    instead = ", ".join(sorted((counted - real).elements())) or "no machine"
    return (
        f"Kueue counts {instead} for pods that are on {', '.join(elsewhere)}, so it may give their "
        "room to other runs (kueue#12735, mended in 0.19). ./disttrain stop and then ./disttrain "
        "resume put it right"
    )


def assigned_machines(own: Json) -> Counter[str]:
    """How many pods Kueue counts on each machine; empty: it counts none by the machine's name."""
    found = Counter[str]()
    for pods in parts(part(own, "status", "admission"), "podSetAssignments"):
        given = part(pods, "topologyAssignment")
        if list(given.get("levels") or [])[-1:] != [HOSTNAME_LABEL]:
            return Counter()
        for domain in parts(given, "domains"):  # v1beta1
            found[str(domain["values"][-1])] += int(domain["count"])
        for some in parts(given, "slices"):  # v1beta2
            names, counts = _names(some), part(some, "podCounts")
            each = counts.get("individual") or [counts["universal"]] * len(names)
            for name, count in zip(names, each, strict=True):
                found[name] += int(count)
    return found


def _names(some: Json) -> list[str]:
    """The names of the machines of a slice, which may share a prefix and a suffix."""
    values = parts(some, "valuesPerLevel")[-1]
    if "universal" in values:
        return [str(values["universal"])] * int(some["domainCount"])
    given = part(values, "individual")
    begin, end = given.get("prefix") or "", given.get("suffix") or ""
    return [f"{begin}{root}{end}" for root in given["roots"]]


def _is_assigned(pod: Json) -> bool:
    """Whether the pod runs on a machine that Kueue has chosen."""
    metadata = part(pod, "metadata")
    asks = TOPOLOGY_ANNOTATIONS & part(metadata, "annotations").keys()
    lives = is_running(pod) and "deletionTimestamp" not in metadata
    return bool(asks) and lives and HOSTNAME_LABEL in part(pod, "spec", "nodeSelector")
