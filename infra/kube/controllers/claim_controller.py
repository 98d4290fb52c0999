"""Task `claim-controller`: refuses to install a controller that somebody else has installed."""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.controllers.controller import (
    Controller,
    definitions_there,
    foreign_parts,
    label_of_stack,
    parse_controller,
)
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, is_ending, name_of
from infra.kube.paths import DEFINITIONS
from infra.kube.waiting import wait_for

END_SECONDS = 180


def create(job: Job, api: Api) -> None:
    """Look for the controller's namespace and definitions; wait for those that are being deleted.

    If the controller is installed from manifests, its cluster-wide objects are looked for too,
    because the engine would silently take over an object of the same name.

    Raises:
        TaskError: one of these exists, and this stack has not made it; or another controller that
            this one needs is not there.
    """
    controller = parse_controller(job.mapping("controller"))

    def ask() -> str:
        namespace = api.get(controller.path)
        definitions = definitions_there(api, controller)
        ending = [item for item in (namespace, *definitions) if item and is_ending(item)]
        if not ending and (problem := refusal(controller, namespace, definitions, job.owner)):
            raise TaskError(problem)
        if not ending and (others := foreign_parts(api, controller, job.owner)):
            raise TaskError(refusal_of_parts(controller, others))
        return f"{name_of(ending[0])} is being deleted" if ending else ""

    if controller.needs and api.get(f"{DEFINITIONS}/{controller.needs[1]}") is None:
        raise TaskError(refusal_without(controller))

    wait_for(f"the end of a former {controller.title}", ask, END_SECONDS)


def refusal(
    controller: Controller, namespace: Json | None, definitions: list[Json], owner: str
) -> str:
    """Why the controller cannot be installed; empty: it can. This function is pure.

    Args:
        controller: the controller.
        namespace: the controller's namespace; None: it does not exist.
        definitions: those of the controller's definitions that exist.
        owner: the owner id of this stack.
    """
    if label_of_stack(namespace, definitions, names.OWNER_LABEL) == owner:
        return ""
    return refusal_of_foreign(controller, namespace, definitions)


def refusal_of_foreign(
    controller: Controller, namespace: Json | None, definitions: list[Json]
) -> str:
    """The text of `refusal` for a namespace that is known not to be ours. This function is pure."""
    if namespace is None and not definitions:
        return ""
    stack = label_of_stack(namespace, definitions, names.STACK_LABEL)
    seen = ", ".join(
        [
            *([f"namespace {controller.namespace}"] if namespace else []),
            *(f"CustomResourceDefinition {name_of(item)}" for item in definitions[:1]),
        ]
    )
    by = f"stack {stack} has installed it" if stack else "this stack has not installed it"
    return (
        f"{controller.setting} cannot be used: {controller.title} is in the cluster already "
        f"({seen}), and {by}, so it is left as it is. {controller.way_out}"
    )


def refusal_of_parts(controller: Controller, others: list[str]) -> str:
    """Why the controller cannot be installed: others have objects of its names.

    This function is pure.
    """
    return (
        f"{controller.setting} cannot be used: {controller.title} has parts of the names "
        f"{', '.join(others)}, which are in the cluster already, and this stack has not made them, "
        f"so they are left as they are. Delete them if nobody needs them; else: "
        f"{controller.way_out}"
    )


def refusal_without(controller: Controller) -> str:
    """Why the controller cannot be installed: another controller that it needs is missing.

    This function is pure.
    """
    assert controller.needs, controller.name
    name, definition = controller.needs
    return (
        f"{controller.setting} cannot be used: {controller.title} needs {name}, and there is no "
        f"CustomResourceDefinition {definition} in the cluster. Add {name} to controllers"
    )
