"""Task `controller-remains`: deletes what is left of a controller after `helm uninstall`.

Helm keeps the definitions that a chart has in its folder crds/. Objects with finalizers of the
controller also stay, if the controller ended before it removed them. If somebody has deleted the
controller's namespace, `helm uninstall` removes nothing at all.
"""

from infra.kube.api_server.api import Api
from infra.kube.controllers.controller import (
    definitions_there,
    free_of_webhooks,
    is_ours,
    parse_controller,
)
from infra.kube.controllers.open_controller import end_objects
from infra.kube.job import Job
from infra.kube.namespaces.owners import is_of_release
from infra.kube.namespaces.strangers import refuse_strangers
from infra.kube.objects import is_ending, name_of, names_of, part
from infra.kube.paths import DEFINITIONS
from infra.kube.say import say
from infra.kube.waiting import wait_for

END_SECONDS = 120
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
definitions, webhooks and APIServices, for which there are steps of their own."""


def delete(job: Job, api: Api) -> None:
    """Delete what is left of the controller in the cluster, if this stack has installed it.

    Raises:
        TaskError: others have made objects of its kinds or in its namespace since the last check,
            or something is not deleted in time. The text names it.
    """
    controller = parse_controller(job.mapping("controller"))
    if not is_ours(api, controller, job.owner):
        return
    refuse_strangers(api, controller.own_namespace, job.owner)  # Its namespace is deleted next.
    free_of_webhooks(api, controller)
    end_objects(api, controller, job.owner, dead=True)
    _delete_release_remains(api, controller.name, controller.namespace)

    def ask() -> str:
        there = definitions_there(api, controller)
        for item in there:
            if not is_ending(item):
                api.delete(f"{DEFINITIONS}/{name_of(item)}", {})
        return f"still there: {names_of(there)}" if there else ""

    wait_for(f"the definitions of {controller.title} to be gone", ask, END_SECONDS)


def _delete_release_remains(api: Api, release: str, namespace: str) -> None:
    """Delete the objects of a release in the whole cluster, except those in its own namespace.

    Helm keeps its record of a release in that namespace. If somebody deletes the namespace, `helm
    uninstall` knows of no release any more, and would leave what is outside of it.

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
