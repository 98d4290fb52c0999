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
from infra.kube.controllers.release_remains import delete_release_remains
from infra.kube.job import Job
from infra.kube.namespaces.strangers import refuse_strangers
from infra.kube.objects import is_ending, name_of, names_of
from infra.kube.paths import DEFINITIONS
from infra.kube.waiting import wait_for

END_SECONDS = 120


def create(job: Job, api: Api) -> None:
    """Do nothing: the task is in the state only for its `delete`."""
    del job, api


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
    delete_release_remains(api, controller.name, controller.namespace)

    def ask() -> str:
        there = definitions_there(api, controller)
        for item in there:
            if not is_ending(item):
                api.delete(f"{DEFINITIONS}/{name_of(item)}", {})
        return f"still there: {names_of(there)}" if there else ""

    wait_for(f"the definitions of {controller.title} to be gone", ask, END_SECONDS)
