"""Which pods of a run say how it is now. Pure: judges objects of the API."""

from cli.logs.pod_logs import node_of
from cli.pod_variables import NODES, number_told
from infra.kube.objects import Json, part
from infra.kube.runs.making_place import ENDED


def pods_wanted(pods: list[Json]) -> int:
    """How many pods the run is to have, as any of them was told; 1 where none is there to ask."""
    told = (number_told(pod, NODES) for pod in pods)
    return next((number for number in told if number), 1)


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
