"""Preferences for the scheduler: whether a run's pods share a place, such as a machine or a rack.

None of these preferences keeps a pod from a node that has room: a run that starts in two racks is
better than one that does not start.
"""

from collections.abc import Mapping

from infra.names import HOSTNAME_LABEL
from infra.objects import Manifest
from infra.settings.pods_neighbours import NeighbourSettings

HEAVIEST = 100  # the highest weight that the scheduler accepts for a preference
NEVER_REACHED = 1_000_000  # how many more pods one machine may have than another


def neighbours(settings: NeighbourSettings, pods: int, selector: Mapping[str, str]) -> Manifest:
    """Fields of a pod's spec; none if Kubernetes chooses, or if there is only one pod.

    Args:
        settings: whether the pods are to be near each other or apart.
        pods: the number of pods of the run.
        selector: labels that the run's pods have, and no other pods.
    """
    if pods == 1 or settings.placement == "auto":
        return {}
    ours = {"labelSelector": {"matchLabels": dict(selector)}}
    if settings.placement == "spread":
        apart = {"maxSkew": 1, "topologyKey": settings.label, "whenUnsatisfiable": "ScheduleAnyway"}
        return {"topologySpreadConstraints": [{**apart, **ours}]}
    near = {"weight": HEAVIEST, "podAffinityTerm": {"topologyKey": settings.label, **ours}}
    # By default Kubernetes prefers to spread pods over machines and zones, with as much weight as
    # the preference above. This default does not apply to a pod with a spread constraint of its
    # own. So the pod gets a constraint that allows every distribution.
    anywhere = {
        "maxSkew": NEVER_REACHED,
        "topologyKey": HOSTNAME_LABEL,
        "whenUnsatisfiable": "DoNotSchedule",
    }
    return {
        "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [near]}},
        "topologySpreadConstraints": [{**anywhere, **ours}],
    }
