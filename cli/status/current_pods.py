"""Which pods of a run say how it is now. Pure: judges objects of the API."""

from cli.logs.pod_logs import node_of
from infra.kube.objects import Json, container_of, part, parts
from infra.kube.runs.making_place import ENDED

NODES_VARIABLE = "PET_NNODES"  # tells each pod how many there are (infra/workloads/pod.py)


def pods_wanted(pods: list[Json]) -> int:
    """How many pods the run is to have, as any of them was told; 1 where none is there to ask."""
    for pod in pods:
        name = container_of(pod)
        for container in parts(part(pod, "spec"), "containers"):
            for variable in parts(container, "env") if container["name"] == name else []:
                if variable.get("name") == NODES_VARIABLE:
                    return int(variable["value"])
    return 1


def current_pods(pods: list[Json]) -> list[Json]:
    """The pods without those that have ended and been replaced.

    A controller may keep such a pod for its log. What it says was so before: the fatal error of a
    launcher, which an MPIJob tries again, is over when the next launcher trains.
    """
    return [pod for pod in pods if not _is_replaced(pod, pods)]


def _is_replaced(pod: Json, pods: list[Json]) -> bool:
    if not _has_ended(pod):
        return False
    others = [other for other in pods if other is not pod and node_of(other) == node_of(pod)]
    return any(not _has_ended(other) or _made(other) > _made(pod) for other in others)


def _has_ended(pod: Json) -> bool:
    return part(pod, "status").get("phase") in ENDED


def _made(pod: Json) -> str:
    """When it was made, as the API writes times; a later one compares as more."""
    return str(part(pod, "metadata").get("creationTimestamp") or "")
