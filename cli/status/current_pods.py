"""Selects the pods that show the present state of a run. This module is pure."""

from cli.pod_facts import NODES, node_of, number_told
from infra.kube.objects import Json, has_ended, part


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
    if not has_ended(pod):
        return False
    others = [other for other in pods if other is not pod and node_of(other) == node_of(pod)]
    return any(not has_ended(other) or _made(other) > _made(pod) for other in others)


def _made(pod: Json) -> str:
    """Return when the pod was created, as a text of the API; a later time is a greater text."""
    return str(part(pod, "metadata").get("creationTimestamp") or "")
