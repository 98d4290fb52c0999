"""Which pods of a run get one place, such as a machine or a rack: wishes that the scheduler weighs.

None of them keeps a pod from a node that has room: a run that starts in two racks is better than
one that does not start.
"""

from collections.abc import Mapping

from infra.names import HOSTNAME_LABEL
from infra.objects import Manifest
from infra.settings.pods_neighbours import NeighbourSettings

HEAVIEST = 100  # the scheduler's own limit for the weight of a wish
NEVER_REACHED = 1_000_000  # pods more on one machine than on another


def neighbours(settings: NeighbourSettings, pods: int, selector: Mapping[str, str]) -> Manifest:
    """Fields of a pod's spec; none where the choice is left to Kubernetes, or there is one pod.

    Args:
        settings: what is wished.
        pods: how many the run has.
        selector: labels that exactly the run's pods have.
    """
    if pods == 1 or settings.placement == "auto":
        return {}
    ours = {"labelSelector": {"matchLabels": dict(selector)}}
    if settings.placement == "spread":
        apart = {"maxSkew": 1, "topologyKey": settings.label, "whenUnsatisfiable": "ScheduleAnyway"}
        return {"topologySpreadConstraints": [{**apart, **ours}]}
    near = {"weight": HEAVIEST, "podAffinityTerm": {"topologyKey": settings.label, **ours}}
    # Kubernetes wishes by itself that pods are spread over machines and zones, which weighs as much
    # as this wish, unless a pod has a rule of its own about that. So it has one that allows all.
    anywhere = {
        "maxSkew": NEVER_REACHED,
        "topologyKey": HOSTNAME_LABEL,
        "whenUnsatisfiable": "DoNotSchedule",
    }
    return {
        "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [near]}},
        "topologySpreadConstraints": [{**anywhere, **ours}],
    }
