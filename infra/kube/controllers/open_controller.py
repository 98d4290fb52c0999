"""Task `open-controller`: waits until a controller works; before its removal, ends its objects."""

from collections.abc import Sequence

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.controllers.controller import (
    Controller,
    definitions_there,
    does_not_answer,
    free_of_webhooks,
    is_made_by_itself,
    is_ours,
    objects_there,
    parse_controller,
    take_finalizers_off,
    used_by_others,
)
from infra.kube.controllers.controllers_findings import without_namespace
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import Job
from infra.kube.namespaces.strangers import refuse_strangers
from infra.kube.objects import Json, is_ending, is_true, name_of, part
from infra.kube.paths import DEFINITIONS
from infra.kube.pods.report import describe_pods
from infra.kube.say import first_of, say
from infra.kube.waiting import wait_for

END_SECONDS = 120
MOST_NAMED = 5


def create(job: Job, api: Api) -> None:
    """Wait until the controller's pods run and the API server accepts its objects.

    The API server checks the job's object `probe` without making it (dryRun). Objects for which the
    controller itself makes pods, and whose kinds the controller's `awaited` lists, have to be
    available too.

    Raises:
        TaskError: the controller does not work within `limit_seconds`. The text describes its pods.
    """
    controller = parse_controller(job.mapping("controller"))
    awaited = job.mapping("controller")["awaited"]

    def ask() -> str:
        inside = f"namespaces/{controller.namespace}"
        deployments = api.list(f"/apis/apps/v1/{inside}/deployments")
        if not deployments or any(not _is_available(each) for each in deployments):
            return describe_pods(api.list(f"/api/v1/{inside}/pods"))
        if wait := _not_available(api, controller, awaited):
            return f"{wait} is not available: " + describe_pods(api.list(f"/api/v1/{inside}/pods"))
        return _refusal(api, job.mapping("probe"))

    limit = job.number("limit_seconds")
    wait_for(f"{controller.title} in namespace {controller.namespace} to answer", ask, limit)
    label_definitions(api, controller, job)


def label_definitions(api: Api, controller: Controller, job: Job) -> None:
    """Note on the definitions who has installed the controller (see `is_ours`).

    Only the namespace would tell otherwise, and somebody may delete that by hand.
    """
    labels = {names.OWNER_LABEL: job.owner, names.STACK_LABEL: job.stack}
    for item in definitions_there(api, controller):
        api.patch(f"{DEFINITIONS}/{name_of(item)}", {"metadata": {"labels": labels}})


def delete(job: Job, api: Api) -> None:
    """Delete this stack's objects of the controller's kinds.

    This happens while the controller still runs, so that it can remove its finalizers.

    Raises:
        TaskError: others use the controller or have objects in its namespace, so it is left as it
            is; or an object is not deleted in time.
    """
    controller = parse_controller(job.mapping("controller"))
    if not is_ours(api, controller, job.owner):
        return
    if api.get(controller.path) is None:
        say(without_namespace(controller))
    refuse_use(api, controller, job.owner)
    refuse_strangers(api, controller.own_namespace, job.owner)
    dead = does_not_answer(api, controller)
    if dead:
        free_of_webhooks(api, controller)
    end_objects(api, controller, job.owner, dead=dead)


def refuse_use(api: Api, controller: Controller, owner: str) -> None:
    """Raise TaskError if others use the controller. The text names their objects and a way out."""
    others = used_by_others(api, controller, owner)
    if others:
        raise TaskError(
            f"{controller.setting} cannot be taken away: others use {controller.title} "
            f"({first_of(others, MOST_NAMED)}), and what they have would be deleted with it. It is "
            "left as it is. Let them delete these objects first, and run the command again"
        )


def end_objects(api: Api, controller: Controller, owner: str, *, dead: bool) -> None:
    """Delete all objects of the controller's kinds, and wait until they are gone.

    Args:
        api: the cluster.
        controller: the controller.
        owner: the owner id of this stack. Objects of others are not touched.
        dead: whether the controller does not answer, so that its finalizers are removed here.

    Raises:
        TaskError: others have made such an object meanwhile, or one is not deleted in time.
    """

    def ask() -> str:
        refuse_use(api, controller, owner)
        left: list[str] = []
        for path, item in objects_there(api, controller):
            if not dead and is_made_by_itself(item, controller):
                continue  # The controller may refuse this or make it again. Its definition goes.
            words = f"{item['kind']} {name_of(item)}"
            try:
                if not is_ending(item):
                    api.delete(path, {"propagationPolicy": "Background"})
                elif dead:
                    take_finalizers_off(api, controller, path, item)
            except ApiError as refused:  # The API server may still ask a webhook for a moment.
                words += f" ({refused})"
            left.append(words)
        return f"still there: {', '.join(left[:MOST_NAMED])}" if left else ""

    if dead:
        say(f"{controller.title} does not answer; what waits for it is freed")
    wait_for(f"what this stack has of {controller.title} to be gone", ask, END_SECONDS)


def _not_available(api: Api, controller: Controller, kinds: Sequence[str]) -> str:
    """An object of these kinds that is not available, such as `Prometheus main`; empty: none."""
    if not kinds:
        return ""
    for _, item in objects_there(api, controller):
        inside = part(item, "metadata").get("namespace") == controller.namespace
        if inside and item["kind"] in kinds and not is_true(item, "Available"):
            return f"{item['kind']} {name_of(item)}"
    return ""


def _is_available(deployment: Json) -> bool:
    status = part(deployment, "status")
    seen = status.get("observedGeneration") == part(deployment, "metadata").get("generation")
    wanted = part(deployment, "spec").get("replicas", 1)
    return seen and status.get("updatedReplicas") == wanted == status.get("availableReplicas")


def _refusal(api: Api, probe: Json) -> str:
    """Why the API server would refuse an object now; empty: it would accept it."""
    try:
        namespace = str(part(probe, "metadata").get("namespace") or "")
        path = api.path(probe["apiVersion"], probe["kind"], namespace)
        api.request("POST", path, probe, query={"dryRun": "All"})
    except ApiError as refused:
        return f"its pods are ready, and the API server says: {refused}"
    return ""
