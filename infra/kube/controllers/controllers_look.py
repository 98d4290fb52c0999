"""Looks, before anything is made, whether the controllers of a platform can be installed."""

from collections.abc import Sequence

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, object_at
from infra.kube.controllers.claim_controller import refusal_of_foreign, refusal_without
from infra.kube.controllers.controller import Controller
from infra.kube.objects import label
from infra.kube.paths import DEFINITIONS


def controllers_findings(api: Api, wanted: Sequence[Controller], stack: str) -> Findings:
    """What keeps them from being installed. Raises ApiError and UnreachableError.

    The identity of the stack's state is not known yet, so its name has to do: `up` compares the
    identity.

    Args:
        api: the cluster.
        wanted: the controllers.
        stack: name of this stack, as its objects' labels have it.
    """
    found = Findings()
    comes = {controller.name for controller in wanted}
    for controller in wanted:
        if controller.needs and controller.needs[0] not in comes:
            needed = object_at(api, f"{DEFINITIONS}/{controller.needs[1]}")
            if needed is None:
                found.problems.append(refusal_without(controller))
        namespace = object_at(api, controller.path)
        seen = [object_at(api, f"{DEFINITIONS}/{name}") for name in controller.definitions]
        if namespace == "unseen" or "unseen" in seen:
            found.unseen(f"whether {controller.title} is there already")
            continue
        if namespace and label(namespace, names.STACK_LABEL) == stack:
            continue
        definitions = [item for item in seen if isinstance(item, dict)]
        if problem := refusal_of_foreign(controller, namespace, definitions):
            found.problems.append(problem)
    return found
