"""Task `controller-remains`: what `helm uninstall` leaves of a controller goes after it.

Helm keeps definitions that a chart has in its folder crds/, and what a controller that was ended
has left behind with finalizers.
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
from infra.kube.namespaces.strangers import refuse_strangers
from infra.kube.objects import is_ending, name_of, names_of
from infra.kube.paths import DEFINITIONS
from infra.kube.waiting import wait_for

END_SECONDS = 120


def create(job: Job, api: Api) -> None:
    """Nothing: this stands there for the day on which the controller goes."""
    del job, api


def delete(job: Job, api: Api) -> None:
    """Delete webhooks and definitions, where the controller's namespace says that it was ours.

    Raises:
        TaskError: others have made objects of its kinds, or any in its namespace, since it was
            asked, or something does not go; names it.
    """
    controller = parse_controller(job.mapping("controller"))
    if not is_ours(api, controller, job.owner):
        return
    refuse_strangers(api, controller.own_namespace, job.owner)  # its namespace goes next
    free_of_webhooks(api, controller)
    end_objects(api, controller, job.owner, dead=True)

    def ask() -> str:
        there = definitions_there(api, controller)
        for item in there:
            if not is_ending(item):
                api.delete(f"{DEFINITIONS}/{name_of(item)}", {})
        return f"still there: {names_of(there)}" if there else ""

    wait_for(f"the definitions of {controller.title} to be gone", ask, END_SECONDS)
