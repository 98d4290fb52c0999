"""Reads the tolerations that Kueue adds to the pods of a run in a queue when it starts them.

https://kueue.sigs.k8s.io/docs/concepts/resource_flavor/
"""

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, unless_forbidden
from infra.kube.errors import ApiError, TaskError
from infra.kube.objects import Json, part, parts
from infra.kube.queues.kueue import collection, served_version
from infra.kube.queues.topology_findings import flavors

EVERY_TAINT: Json = {"operator": "Exists"}


def flavor_tolerations(api: Api, namespace: str, queue: str, found: Findings) -> list[Json]:
    """The tolerations of all flavors of a queue; Kueue adds those of the flavors that it chooses.

    Args:
        api: the cluster.
        namespace: the namespace of the queue.
        queue: the name of the LocalQueue. If there is no such queue, there are no tolerations.
        found: notes that these credentials may not read the flavors. Then every taint counts as
            tolerated, so that no run is refused without a reason.
    """

    def forbidden(_: ApiError) -> list[Json]:
        found.unseen(f"which taints the pods in queue {queue} tolerate")
        return [EVERY_TAINT]

    return unless_forbidden(lambda: _tolerations(api, namespace, queue), forbidden)


def _tolerations(api: Api, namespace: str, queue: str) -> list[Json]:
    try:
        version = served_version(api)
    except TaskError:
        version = ""
    if not version:  # `queue_findings` reports it.
        return []
    local = api.get(f"{collection(version, 'localqueues', namespace)}/{queue}") or {}
    team = part(local, "spec").get("clusterQueue")
    names = flavors(api.get(f"{collection(version, 'clusterqueues')}/{team}") or {})
    found = [api.get(f"{collection(version, 'resourceflavors')}/{name}") or {} for name in names]
    return [each for flavor in found for each in parts(part(flavor, "spec"), "tolerations")]
