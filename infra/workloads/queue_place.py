"""What a run asks of a queue with a topology: all pods near each other, or all in one place.

Kueue then looks for the machines of all pods before it lets the first one start, and each pod
starts on the machine that it was given
(https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/).
"""

from collections.abc import Mapping

from infra.names import PLACE_ANNOTATIONS, PREFERRED_PLACE, REQUIRED_PLACE
from infra.objects import Manifest
from infra.settings.pods_neighbours import NeighbourSettings

GROUP = "kueue.x-k8s.io/podset-group-name"
GROUP_NAME = "run"


def place_request(
    settings: NeighbourSettings, pods: int, given: Mapping[str, str]
) -> dict[str, str]:
    """Annotations of the pods by which a run asks for its places.

    With `preferred` Kueue tries one place of that label, then the next wider ones, and in the end
    takes several: it is no reason to wait.

    Args:
        settings: what is wished.
        pods: how many the run has; one pod is always in one place.
        given: annotations of the user's own, which may ask for themselves.
    """
    if pods == 1 or PLACE_ANNOTATIONS & given.keys():
        return {}
    key = REQUIRED_PLACE if settings.placement == "one-place" else PREFERRED_PLACE
    return {key: settings.label}


def as_one_group(template: Manifest) -> Manifest:
    """The pod template of a workload with two sets of pods, of which Kueue makes one.

    Without this it would look for a place for the first set, and for another one for the second.
    """
    metadata = template["metadata"]
    annotations = metadata.get("annotations", {})
    if not {REQUIRED_PLACE, PREFERRED_PLACE} & annotations.keys():
        return template
    return {
        **template,
        "metadata": {**metadata, "annotations": {GROUP: GROUP_NAME, **annotations}},
    }
