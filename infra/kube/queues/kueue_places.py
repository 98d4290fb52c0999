"""Whether Kueue still counts the machines on which the pods of a run are.

Kueue chooses the machines of a run in a queue that knows racks, and writes the choice into the pods
and into its Workload. Before version 0.19 it chose another machine for a pod whose machine had been
silent for 30 seconds, also where that machine then came back with the pod alive. From then on it
counts the wrong machine (https://github.com/kubernetes-sigs/kueue/issues/12735).
"""

from collections import Counter
from collections.abc import Sequence

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.objects import Json, label, part, parts
from infra.kube.queues.kueue import kueue_workload
from infra.names import HOSTNAME_LABEL, PLACE_ANNOTATIONS, QUEUE_LABEL


def words_of_places(api: Api, namespace: str, item: Json, pods: Sequence[Json]) -> str:
    """What is said of a run whose pods are elsewhere; empty where they are not, or it is not known.

    Args:
        api: the cluster.
        namespace: of the run.
        item: the run's workload.
        pods: of its training.
    """
    placed = [pod for pod in pods if _is_placed(pod)]
    if not placed or not label(item, QUEUE_LABEL):
        return ""
    try:
        own = kueue_workload(api, namespace, item)
    except (ApiError, TaskError, UnreachableError):  # these credentials may not read it
        return ""
    return words_of_other_places(own, placed) if own else ""


def words_of_other_places(own: Json, pods: Sequence[Json]) -> str:
    """Words for living pods on other machines than Kueue's Workload counts. Pure."""
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
    """For how many pods Kueue counts each machine; empty where it counts none by name."""
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
    """Names of a slice's machines, which all may have a begin and an end in common."""
    values = parts(some, "valuesPerLevel")[-1]
    if "universal" in values:
        return [str(values["universal"])] * int(some["domainCount"])
    given = part(values, "individual")
    begin, end = given.get("prefix") or "", given.get("suffix") or ""
    return [f"{begin}{root}{end}" for root in given["roots"]]


def _is_placed(pod: Json) -> bool:
    """Whether it lives on a machine that Kueue has chosen."""
    metadata = part(pod, "metadata")
    asks = PLACE_ANNOTATIONS & part(metadata, "annotations").keys()
    lives = part(pod, "status").get("phase") == "Running" and "deletionTimestamp" not in metadata
    return bool(asks) and lives and HOSTNAME_LABEL in part(pod, "spec", "nodeSelector")
