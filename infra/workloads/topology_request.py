"""The annotations by which a run asks Kueue for machines that are near each other, or in one place.

They need a queue with a topology. Kueue then chooses the machines of all pods before it lets the
first pod start, and each pod starts on the machine that was chosen for it
(https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/).
"""

from collections.abc import Mapping

from infra.names import PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY, TOPOLOGY_ANNOTATIONS
from infra.objects import Manifest
from infra.settings.pods_neighbours import NeighbourSettings

GROUP = "kueue.x-k8s.io/podset-group-name"
GROUP_NAME = "run"


def topology_request(
    settings: NeighbourSettings, pods: int, given: Mapping[str, str]
) -> dict[str, str]:
    """The annotations of the pods by which a run asks for its machines.

    With the annotation `preferred`, Kueue first tries to put all pods into one place of that label,
    then into one of the next wider level, and finally into several places. So this annotation never
    makes a run wait.

    Args:
        settings: whether the pods are to be near each other or apart.
        pods: the number of pods of the run. One pod needs no annotation.
        given: the user's own annotations. If one of them already asks for a place, none is added.
    """
    if pods == 1 or TOPOLOGY_ANNOTATIONS & given.keys():
        return {}
    key = REQUIRED_TOPOLOGY if settings.placement == "one-place" else PREFERRED_TOPOLOGY
    return {key: settings.label}


def as_one_group(template: Manifest) -> Manifest:
    """The pod template of a workload with two sets of pods, which Kueue then places as one group.

    Without this, Kueue would look for a place for the first set, and for another one for the second
    set.
    """
    metadata = template["metadata"]
    annotations = metadata.get("annotations", {})
    if not {REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY} & annotations.keys():
        return template
    return {
        **template,
        "metadata": {**metadata, "annotations": {GROUP: GROUP_NAME, **annotations}},
    }
