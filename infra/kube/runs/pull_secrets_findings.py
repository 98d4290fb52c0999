"""Checks whether the Secrets exist with which the nodes are to pull the image of a run's pods.

Without this check, the kubelet would pull without a login, and the pods would show only that the
registry refuses. The content of a Secret is neither kept nor shown.
"""

from collections.abc import Collection

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, object_at
from infra.kube.objects import Json, part, parts
from infra.kube.paths import NAMESPACES, SECRETS

TYPES = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")


def pull_secrets_findings(api: Api, namespace: str, pod: Json, comes: Collection[str]) -> Findings:
    """Check the Secrets of a pod's `imagePullSecrets`. Raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        namespace: the namespace of the pod.
        pod: its manifest.
        comes: the names of Secrets that the stack itself makes.
    """
    found = Findings()
    asked = [str(each["name"]) for each in parts(part(pod, "spec"), "imagePullSecrets")]
    for name in (name for name in asked if name not in comes):
        item = object_at(api, f"{SECRETS.format(namespace)}/{name}")
        key = f"imageDeliveryOptions.pullSecret: {name!r} cannot be used"
        if item == "unseen":
            found.unseen(f"whether the Secret {name} of namespace {namespace} holds a login")
        elif isinstance(item, dict) and item.get("type") not in TYPES:
            found.problems.append(
                f"{key}: its type is {item.get('type')}, and the nodes take a login only from "
                f"{' or '.join(TYPES)}. Make it with `kubectl create secret docker-registry`"
            )
        elif item is None and object_at(api, f"{NAMESPACES}/{namespace}") is None:
            found.notes.append(
                f"namespace {namespace} does not exist yet, so the Secret {name} has to come by "
                "itself when it is made. If nothing in the cluster copies it there, make the "
                "platform first (pulumi config set topology none; pulumi up), then the Secret"
            )
        elif item is None:
            found.problems.append(
                f"{key}: namespace {namespace} has no such Secret, so the nodes would pull without "
                f"a login. Set one that is there, or make it: `kubectl -n {namespace} create "
                f"secret docker-registry {name} --docker-server=... --docker-username=... "
                "--docker-password=...`"
            )
    return found
