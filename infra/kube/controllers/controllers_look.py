"""Checks, before anything is made, whether the controllers of a platform can be installed."""

from collections.abc import Sequence

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, object_at
from infra.kube.controllers.claim_controller import refusal_of_foreign, refusal_without
from infra.kube.controllers.controller import Controller
from infra.kube.objects import label
from infra.kube.paths import DEFINITIONS


def controllers_findings(api: Api, wanted: Sequence[Controller], stack: str) -> Findings:
    """Why the controllers cannot be installed. Raises ApiError and UnreachableError.

    The owner id of this stack is not known yet, so the stack's name in the namespace's label has to
    be enough. The task `claim-controller` compares the owner id later.

    Args:
        api: the cluster.
        wanted: the controllers.
        stack: the name of this stack, as in the labels of its objects.
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
