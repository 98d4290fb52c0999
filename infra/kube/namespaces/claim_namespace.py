"""Task `claim-namespace`: refuses namespaces of the settings that this stack has not made."""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, object_at
from infra.kube.errors import TaskError
from infra.kube.foreign import belongs, is_foreign
from infra.kube.job import Job
from infra.kube.kept import kept_by, leave
from infra.kube.namespaces.left_namespaces import refuse_left_namespaces
from infra.kube.objects import Json, is_ending, label, part, parts
from infra.kube.paths import NAMESPACES
from infra.kube.waiting import wait_for

END_SECONDS = 180  # how long the deletion of a namespace may take


def create(job: Job, api: Api) -> None:
    """Check each namespace in the job's `names`; wait for those that are being deleted.

    Raises:
        TaskError: a namespace exists that does not belong to this stack; others have objects in a
            namespace that this platform leaves; or a deletion takes too long.
    """
    existing = {name: api.get(f"{NAMESPACES}/{name}") for name in job.texts("names")}
    for name, item in existing.items():
        if item is not None and (problem := refusal(name, item, job.owner, job.stack)):
            raise TaskError(problem)
    if job.namespace in existing:
        refuse_left_namespaces(job, api)
    for name, item in existing.items():
        if item is not None and is_ending(item):
            _wait_until_gone(api, name)


def delete(job: Job, api: Api) -> None:
    """If the job says that the namespaces are kept, mark them, so that the next `up` uses them."""
    if job.fields.get("kept"):
        for name in job.texts("names"):
            path = f"{NAMESPACES}/{name}"
            leave(api, path, job.owner, job.stack, f"namespace {name} with the claim in it")


def namespace_findings(api: Api, name: str, owner: str, stack: str) -> Findings:
    """What the task would refuse, for a preview. Raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        name: the name of the namespace that the platform makes.
        owner: the owner id of this stack; empty: it has made no object yet.
        stack: the full name of this stack.
    """
    found, item = Findings(), object_at(api, f"{NAMESPACES}/{name}")
    if item == "unseen":
        found.unseen(f"whether the namespace {name} belongs to others")
    elif item and (problem := refusal(name, item, owner, stack)):
        found.problems.append(problem)
    return found


def refusal(name: str, item: Json, owner: str, stack: str) -> str:
    """Why the namespace cannot be used; empty: it is ours or was left by our stack.

    This function is pure.

    Args:
        name: the name of the namespace.
        item: the namespace.
        owner: the owner id of this stack; empty: it has made no object yet.
        stack: the full name of this stack.
    """
    left_by = kept_by(item)
    if not is_foreign(item, owner) or left_by == stack:
        return ""
    is_left = left_by and not label(item, names.OWNER_LABEL)
    there = f"was left there with the data of stack {left_by}" if is_left else belongs(item)
    of = label(item, names.STACK_LABEL)
    # A stack of the same name is in another backend of Pulumi, so `platform` would not find it.
    is_findable = of and not is_left and of != stack.rpartition("/")[2]
    join = f" To put a run onto the platform of that stack: pulumi config set platform {of}."
    return (
        f"namespace: {name!r} exists on the cluster and {there}, so it is left as it is: "
        "`pulumi destroy` of this stack would delete it with all that is in it. Choose another "
        "name, and on the same machine also another data folder: "
        "pulumi config set namespace NAME; pulumi config set dataRoot FOLDER. To use it "
        "without ever changing or deleting it: pulumi config set namespaceExisting use."
        f"{join if is_findable else ''}"
    )


def _wait_until_gone(api: Api, name: str) -> None:
    def ask() -> str:
        item = api.get(f"{NAMESPACES}/{name}")
        if item is None or not is_ending(item):
            return ""
        conditions = parts(part(item, "status"), "conditions")
        said = [str(c.get("message")) for c in conditions if c.get("status") == "True"]
        return "; ".join(said) or "it is being deleted"

    wait_for(f"namespace {name} of a former `pulumi up` to be gone", ask, END_SECONDS)
