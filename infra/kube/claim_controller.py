"""Task `claim-controller`: refuses a controller that somebody else has installed."""

from infra.kube import names
from infra.kube.api import Api
from infra.kube.controllers import Controller, definitions_there, parse_controller
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, is_ending, label, name_of
from infra.kube.waiting import wait_for

END_SECONDS = 180


def create(job: Job, api: Api) -> None:
    """Look for its namespace and its definitions, and wait for those of ours that are ending.

    Raises:
        TaskError: one of them is there, and this stack has not made the namespace.
    """
    controller = parse_controller(job.mapping("controller"))

    def ask() -> str:
        namespace = api.get(controller.path)
        definitions = definitions_there(api, controller)
        ending = [item for item in (namespace, *definitions) if item and is_ending(item)]
        if not ending and (problem := refusal(controller, namespace, definitions, job.owner)):
            raise TaskError(problem)
        return f"{name_of(ending[0])} is being deleted" if ending else ""

    wait_for(f"the end of a former {controller.title}", ask, END_SECONDS)


def delete(job: Job, api: Api) -> None:
    """Nothing of this stays behind."""
    del job, api


def refusal(
    controller: Controller, namespace: Json | None, definitions: list[Json], owner: str
) -> str:
    """Why the controller cannot be installed; empty: it can. Pure.

    Args:
        controller: it.
        namespace: its namespace, if that is there.
        definitions: those of its definitions that are there.
        owner: ours.
    """
    whose = label(namespace, names.OWNER_LABEL) if namespace else ""
    if whose == owner:
        return ""
    return refusal_of_foreign(controller, namespace, definitions)


def refusal_of_foreign(
    controller: Controller, namespace: Json | None, definitions: list[Json]
) -> str:
    """As `refusal`, where the namespace is known not to be ours. Pure."""
    if namespace is None and not definitions:
        return ""
    stack = label(namespace, names.STACK_LABEL) if namespace else ""
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
