"""Task `destroy-guard`: refuses to destroy a platform that runs of other stacks still use."""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.controllers.controller import (
    does_not_answer,
    free_of_webhooks,
    is_ours,
    objects_there,
    parse_controller,
    take_finalizers_off,
)
from infra.kube.controllers.open_controller import refuse_use
from infra.kube.errors import KubeconfigError, TaskError, UnreachableError
from infra.kube.foreign import belongs, is_foreign
from infra.kube.gone_cluster import PATIENCE_SECONDS, WAY_OUT, is_given_up
from infra.kube.job import Job
from infra.kube.namespaces import namespace_guard
from infra.kube.namespaces.own_namespace import parse_own_namespace
from infra.kube.namespaces.strangers import refuse_strangers
from infra.kube.queues.open_queue import in_the_way
from infra.kube.queues.queue_members import named, of_others, standing_in
from infra.kube.record import ALL, COLLECTION, SELECTOR, destroy_commands, stacks_of_others
from infra.kube.say import say


def delete(job: Job, api: Api) -> None:
    """Refuse to go on if other stacks or other people still use the platform.

    The task looks for runs of other stacks, for work of others in the platform's queue, for objects
    of others that its controllers manage, and for objects of others in the namespaces that
    `destroy` deletes.

    Raises:
        TaskError: others use the platform, the kubeconfig cannot be used, or the cluster does not
            answer and is not our own k3s.
        KubeconfigError, UnreachableError: the cluster cannot be reached, and the user has given it
            up.
    """
    api.patience_seconds = PATIENCE_SECONDS
    k3s_is_ours = bool(job.fields.get("k3s_is_ours"))
    try:
        # With our own k3s, the runs in all of its namespaces would go.
        items = api.list(ALL if k3s_is_ours else COLLECTION.format(job.namespace), SELECTOR)
    except UnreachableError as reason:
        if k3s_is_ours:
            say(f"the cluster does not answer ({reason}); the node itself is asked next")
            return
        if is_given_up():
            raise
        raise TaskError(
            f"the cluster does not answer ({reason}), so it is not known whether runs of other "
            f"stacks use it. Nothing was deleted; run pulumi destroy when it answers. {WAY_OUT}"
        ) from None
    except KubeconfigError as reason:
        if is_given_up():
            raise
        raise TaskError(
            f"{reason}. Nothing was deleted. If the kubeconfig is elsewhere on this machine, set "
            "its path: pulumi config set kubeconfig FILE. A new place is noted by `pulumi up`; "
            f"then run pulumi destroy again. {WAY_OUT}"
        ) from None
    others = stacks_of_others(items, job.owner)
    if others:
        raise TaskError(
            f"runs of other stacks use this platform: {', '.join(others)}. Nothing was "
            f"deleted. First (the data is kept):{destroy_commands(others)}"
        )
    refuse_namespaces_of_others(job, api)
    _check_queue(job, api)
    namespace_guard.delete(job, api)
    _check_controllers(job, api)


def refuse_namespaces_of_others(job: Job, api: Api) -> None:
    """Refuse to go on if a namespace that the engine would delete is not this stack's.

    The engine deletes a namespace by its name. If the current context of the kubeconfig has changed
    since the last `up`, it would delete a namespace of that name in another cluster.
    """
    for given in job.mappings("own_namespaces"):
        namespace = parse_own_namespace(given)
        item = api.get(namespace.path)
        if item is None or not is_foreign(item, job.owner):
            continue
        raise TaskError(
            f"namespace {namespace.name}, which this would delete, {belongs(item)}. Nothing was "
            "deleted. If the kubeconfig of the last `pulumi up` leads to another cluster by now, "
            "such as with another current context, let it lead to the cluster of this stack again. "
            "If it is the right cluster, somebody has made this namespace again. If it may be "
            "deleted, label it and run pulumi destroy again: kubectl label namespace "
            f"{namespace.name} --overwrite {names.OWNER_LABEL}={job.owner}"
        )


def _check_queue(job: Job, api: Api) -> None:
    """Refuse to go on if work of others is in the platform's queue, such as a Job of a user."""
    queue = job.mapping("queue")
    if not queue:
        return
    inside = standing_in(api, job.namespace, queue["cluster_queue"])
    others = of_others(api, job.namespace, inside, job.owner)
    if others:
        raise TaskError(
            f"nothing was deleted: {in_the_way(queue['queue'], job.namespace, named(others))}"
        )


def _check_controllers(job: Job, api: Api) -> None:
    """Refuse to go on if others use the platform's controllers.

    Others' objects of the controllers' kinds would be deleted with the definitions of these kinds,
    and others' objects in the controllers' namespaces with the namespaces.

    If nobody uses them, the webhooks and finalizers of a controller that does not answer are
    removed here already. While its webhooks are there, objects of its kinds cannot be changed or
    deleted. While an object keeps a finalizer of such a controller, a run cannot end. An example is
    the Workload that Kueue has made for the run.
    """
    ours = [parse_controller(given) for given in job.mappings("controllers")]
    ours = [controller for controller in ours if is_ours(api, controller, job.owner)]
    for controller in ours:
        refuse_use(api, controller, job.owner)
        refuse_strangers(api, controller.own_namespace, job.owner)
    for controller in ours:
        if does_not_answer(api, controller):
            free_of_webhooks(api, controller)
            for path, item in objects_there(api, controller):
                take_finalizers_off(api, controller, path, item)
