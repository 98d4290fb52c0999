"""Selects the pods that show the present state of a run. This module is pure."""

from cli.logs.pod_logs import node_of
from cli.pod_variables import NODES, number_told
from infra.kube.objects import Json, part
from infra.kube.runs.suspending import ENDED


def pods_wanted(pods: list[Json]) -> int:
    """Return how many pods the run should have, from a variable of any pod; 1 if no pod has it."""
    told = (number_told(pod, NODES) for pod in pods)
    return next((number for number in told if number), 1)


def current_pods(pods: list[Json]) -> list[Json]:
    """Return the pods without those that have ended and were replaced.

    A controller may keep such a pod for its log. Its lines are about the past: if the launcher of
    an MPIJob has failed, its fatal error is over when the next launcher trains.
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
    """Return when the pod was created, as a text of the API; a later time is a greater text."""
    return str(part(pod, "metadata").get("creationTimestamp") or "")
