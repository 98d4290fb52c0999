"""Reads from the stack's state in which cluster its objects are. The functions are pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.kube.objects import part
from infra.kube.paths import CLAIMS, CONFIG_MAPS, NAMESPACES, VOLUMES
from infra.platform.stack_state import StateResource

COMPONENT = "disttrain:infra:Cluster"
PROVIDER = ("pulumi:providers:kubernetes", "cluster-provider")
LEADS_TO = "leadsTo"
"""Output of the component: the result of `cluster_identifier` at the last `up`."""

COLLECTIONS = {
    "kubernetes:core/v1:Namespace": NAMESPACES,
    "kubernetes:core/v1:PersistentVolume": VOLUMES,
    "kubernetes:core/v1:PersistentVolumeClaim": CLAIMS,
    "kubernetes:core/v1:ConfigMap": CONFIG_MAPS,
}


@dataclass(frozen=True)
class FormerCluster:
    """The cluster of the last `up`, as the state describes it.

    Args:
        identifier: names the cluster to the Kubernetes provider.
        leads_to: the result of `cluster_identifier` at the last `up`. It differs from `identifier`
            if the cluster has got another address since the first `up`.
        is_existing: whether it was a cluster with `cluster: existing`, and not a k3s.
        kubeconfig: path of the kubeconfig; for a k3s the content of the kubeconfig.
        context: the context in the kubeconfig; empty: the current one.
        uids: the uids of this stack's objects in the cluster, by their paths at the API server.
    """

    identifier: str
    leads_to: str
    is_existing: bool
    kubeconfig: str
    context: str
    uids: Mapping[str, str]


def former_cluster(resources: Sequence[StateResource]) -> FormerCluster | None:
    """Find the cluster of the last `up`.

    Returns:
        None if there was no `up`, if it ended before the cluster was registered, or if the stack
        had no platform of its own.
    """
    components = [each.outputs for each in resources if each.type == COMPONENT]
    providers = [each.outputs for each in resources if (each.type, each.name) == PROVIDER]
    identifier = str(providers[0].get("clusterIdentifier") or "") if providers else ""
    kubeconfig = str(providers[0].get("kubeconfig") or "") if providers else ""
    if not (components and identifier):
        return None
    return FormerCluster(
        identifier=identifier,
        leads_to=str(components[0].get(LEADS_TO) or identifier),
        is_existing="\n" not in kubeconfig,
        kubeconfig=kubeconfig,
        context=str(providers[0].get("context") or ""),
        uids=dict(filter(None, map(_path_and_uid, resources))),
    )


def _path_and_uid(resource: StateResource) -> tuple[str, str] | None:
    if resource.type not in COLLECTIONS:
        return None
    metadata = part(dict(resource.outputs), "metadata")
    if not metadata.get("uid"):
        return None
    collection = COLLECTIONS[resource.type].format(metadata.get("namespace"))
    return f"{collection}/{metadata.get('name')}", str(metadata["uid"])
