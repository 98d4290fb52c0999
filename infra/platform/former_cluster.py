"""The cluster in which the objects of this stack are, as its state has it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.kube.objects import part
from infra.kube.paths import CLAIMS, CONFIG_MAPS, NAMESPACES, VOLUMES
from infra.platform.stack_state import StateResource

COMPONENT = "disttrain:infra:Cluster"
PROVIDER = ("pulumi:providers:kubernetes", "cluster-provider")
LEADS_TO = "leadsTo"
"""Output of the component: what `cluster_identifier` said of the settings at the last `up`."""

COLLECTIONS = {
    "kubernetes:core/v1:Namespace": NAMESPACES,
    "kubernetes:core/v1:PersistentVolume": VOLUMES,
    "kubernetes:core/v1:PersistentVolumeClaim": CLAIMS,
    "kubernetes:core/v1:ConfigMap": CONFIG_MAPS,
}


@dataclass(frozen=True)
class FormerCluster:
    """What the last `up` has left in the state.

    Args:
        identifier: names the cluster to the Kubernetes provider.
        leads_to: what `cluster_identifier` said then. It is another text than `identifier` where
            the cluster has got another address since the first `up`.
        is_existing: it was one with `cluster: existing`, and no k3s.
        kubeconfig: its path; of a k3s its content.
        context: of the kubeconfig; empty: its current one.
        uids: of objects of this stack in the cluster, by their paths at the API server.
    """

    identifier: str
    leads_to: str
    is_existing: bool
    kubeconfig: str
    context: str
    uids: Mapping[str, str] = field(default_factory=dict[str, str])


def former_cluster(resources: Sequence[StateResource]) -> FormerCluster | None:
    """The cluster of the last `up`; None: there was none, or it did not come to the cluster, or the
    stack had no platform of its own."""
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
