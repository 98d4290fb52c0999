"""Refuses a change of the namespace if others have objects in the former namespace.

If the settings name another namespace, the engine deletes the former one at the end of `pulumi up`,
with all that is in it.
"""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import list_if_allowed
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.kept import leave
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.kube.namespaces.strangers import refuse_strangers
from infra.kube.objects import annotation, is_ending, label, name_of
from infra.kube.paths import CLAIMS, NAMESPACES
from infra.kube.record import COLLECTION, SELECTOR, destroy_commands, stacks_of_others
from infra.names import CLAIM_OF_CLASS

OF_PLATFORM = f"{names.COMPONENT_LABEL}=namespace"


def refuse_left_namespaces(job: Job, api: Api) -> None:
    """Check the namespaces of this platform other than the job's own.

    A namespace that is kept because of the data in it is marked as `pulumi destroy` marks it.

    Raises:
        TaskError: runs of other stacks, or objects of others, are in such a namespace.
    """
    mine = f"{OF_PLATFORM},{names.OWNER_LABEL}={job.owner}"
    found, _ = list_if_allowed(api, NAMESPACES, mine)
    for item in found or ():
        if name_of(item) != job.namespace and not is_ending(item):
            _refuse_to_leave(job, api, name_of(item))


def _refuse_to_leave(job: Job, api: Api, left: str) -> None:
    others = stacks_of_others(api.list(COLLECTION.format(left), SELECTOR), job.owner)
    if others:
        raise TaskError(
            f"namespace: {job.namespace!r} cannot be used: this stack would leave namespace "
            f"{left}, and runs of other stacks are there: {', '.join(others)}. Nothing was "
            f"changed. Set namespace: {left} again, or first end those runs (the data is kept):"
            f"{destroy_commands(others)}"
        )
    if stays(api, left, job.owner):
        what = f"namespace {left} with the claim in it"
        leave(api, f"{NAMESPACES}/{left}", job.owner, job.stack, what)
    else:
        refuse_strangers(api, OwnNamespace(left, f"the platform in namespace {left}"), job.owner)


def stays(api: Api, namespace: str, owner: str) -> bool:
    """Whether a former namespace of ours is kept, because a claim in it has data to keep."""
    claim = api.get(f"{CLAIMS.format(namespace)}/{CLAIM_OF_CLASS}")
    return bool(
        claim
        and label(claim, names.OWNER_LABEL) == owner
        and not annotation(claim, names.PURGES_ANNOTATION)
    )
