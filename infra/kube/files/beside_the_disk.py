"""Places the pod of a command on the node to which the disk of its claim is attached."""

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import object_at, objects_at
from infra.kube.objects import Json, has_ended, machine_of, part, parts
from infra.kube.paths import CLAIMS, PODS
from infra.names import ONE_NODE


def beside_the_disk(api: Api, manifest: Json, claim: str) -> Json:
    """The manifest of a pod, with the node of its disk if only one node can mount it at a time.

    Kubernetes' scheduler does not look at where such a disk is attached. On another node, the pod
    would wait for the disk until all pods that use it have ended. The manifest stays as it is if
    nobody uses the disk, if several nodes can mount it, or if these credentials may not see that.

    Args:
        api: the cluster.
        manifest: the manifest of the pod.
        claim: the name of the claim that the pod mounts.
    """
    namespace = str(manifest["metadata"]["namespace"])
    if access_modes(api, namespace, claim) != [ONE_NODE]:
        return manifest
    pods = objects_at(api, PODS.format(namespace)) or []
    nodes = {machine_of(pod) for pod in pods if _mounts(pod, claim) and not has_ended(pod)} - {""}
    if not nodes:
        return manifest
    # A term may name one node only, and one term has to match.
    each = [{"key": "metadata.name", "operator": "In", "values": [node]} for node in sorted(nodes)]
    terms = {"nodeSelectorTerms": [{"matchFields": [field]} for field in each]}
    there = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    spec = part(manifest, "spec")
    return {**manifest, "spec": {**spec, "affinity": {**part(spec, "affinity"), **there}}}


def access_modes(api: Api, namespace: str, claim: str) -> list[str]:
    """How a claim may be mounted; empty: it is not there, or these credentials may not see it."""
    item = object_at(api, f"{CLAIMS.format(namespace)}/{claim}")
    modes = part(item, "spec").get("accessModes") if isinstance(item, dict) else None
    return [*(modes or [])]


def _mounts(pod: Json, claim: str) -> bool:
    volumes = parts(part(pod, "spec"), "volumes")
    return any(part(each, "persistentVolumeClaim").get("claimName") == claim for each in volumes)
