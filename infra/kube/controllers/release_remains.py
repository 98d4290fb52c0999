"""Deletes what is left in the cluster of a Helm release whose own record is gone.

Helm keeps its record of a release in the release's namespace. If somebody deletes that namespace,
`helm uninstall` knows of no release any more, and nobody would delete its roles and other objects
that are outside of the namespace.
"""

from infra.kube.api_server.api import Api
from infra.kube.namespaces.owners import is_of_release
from infra.kube.objects import name_of, part
from infra.kube.say import say

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_MADE_BY_HELM = "app.kubernetes.io/managed-by=Helm"  # Helm writes this label to all its objects.
COLLECTIONS = (
    (_RBAC, "clusterrolebindings"),
    (_RBAC, "clusterroles"),
    (_RBAC, "rolebindings"),
    (_RBAC, "roles"),
    ("/api/v1", "services"),
)
"""What the charts of this program's controllers make outside of their namespace, except for
definitions, webhooks and APIServices, which `controller-remains` deletes itself."""


def delete_release_remains(api: Api, release: str, namespace: str) -> None:
    """Delete the objects of a release in the whole cluster, except those in its own namespace.

    Args:
        api: the cluster.
        release: the name of the release.
        namespace: the release's namespace, which is gone or is deleted next.

    Raises:
        ApiError: the API server refuses a request.
    """
    for group, plural in COLLECTIONS:
        for item in api.list(f"{group}/{plural}", _MADE_BY_HELM):
            inside = str(part(item, "metadata").get("namespace") or "")
            if inside == namespace or not is_of_release(item, release, namespace):
                continue
            scope = f"/namespaces/{inside}" if inside else ""
            if api.delete(f"{group}{scope}/{plural}/{name_of(item)}", {}):
                say(f"{plural}/{name_of(item)} of the Helm release {release} is taken away")
