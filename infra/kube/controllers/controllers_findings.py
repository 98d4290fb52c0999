"""Checks, before anything is made, whether the controllers of a platform can be installed."""

from collections.abc import Sequence

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, object_at
from infra.kube.controllers.claim_controller import refusal_of_foreign, refusal_without
from infra.kube.controllers.controller import Controller, label_of_stack
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
        definitions = [item for item in seen if isinstance(item, dict)]
        if label_of_stack(namespace, definitions, names.STACK_LABEL) == stack:
            if namespace is None:
                found.notes.append(without_namespace(controller))
            continue
        if problem := refusal_of_foreign(controller, namespace, definitions):
            found.problems.append(problem)
    return found


def without_namespace(controller: Controller) -> str:
    """What to do if this stack has installed the controller, and its namespace is gone."""
    return (
        f"{controller.setting}: namespace {controller.namespace}, in which this stack has "
        f"installed {controller.title}, is not there any more. Run `pulumi refresh`, and then "
        "`pulumi up` or `pulumi destroy`: the one installs it again, the other removes what is "
        "left of it"
    )
