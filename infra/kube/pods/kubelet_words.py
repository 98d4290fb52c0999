"""Finds out why pods that have a machine do not start, from the events of their kubelets.

If a volume cannot be mounted, or the network gives a pod no address, its status says only
ContainerCreating.
"""

from collections.abc import Sequence

from infra.kube.api_server.api import Api
from infra.kube.api_server.events import events_about, newest_words
from infra.kube.errors import ApiError
from infra.kube.objects import Json, machine_of, part, parts

REASONS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")
SILENT = {"ContainerCreating", "PodInitializing"}  # what a status says if it does not say why
MOST_PODS = 3  # `up` asks again twice a second


def words_of_kubelet(api: Api, namespace: str, pods: Sequence[Json]) -> str:
    """Why pods do not start on their machines; empty: all have started, or no event says why.

    It is empty, too, if these credentials may not read events.

    Args:
        api: the cluster.
        namespace: the namespace of the pods.
        pods: the pods. The first MOST_PODS of those that have not started are asked about.
    """
    waiting = [pod for pod in pods if machine_of(pod) and _waits_silently(pod)]
    try:
        found = [
            event
            for pod in waiting[:MOST_PODS]
            for event in events_about(api, namespace, str(pod["metadata"]["uid"]), "Warning")
            if event.get("reason") in REASONS
        ]
    except ApiError:
        return ""
    return newest_words(found)


def _waits_silently(pod: Json) -> bool:
    """Whether the pod has not started, and its status does not say why, as for an image."""
    status = part(pod, "status")
    kinds = ("initContainerStatuses", "containerStatuses")
    waits = [part(each, "state", "waiting") for kind in kinds for each in parts(status, kind)]
    reasons = {each.get("reason") for each in waits if each}
    return status.get("phase") == "Pending" and reasons <= SILENT
