"""Task `claim-namespace`: refuses namespaces that are not ours."""

from infra.kube import names
from infra.kube.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, is_ending, label, part, parts
from infra.kube.waiting import wait_for

END_SECONDS = 180  # how long a namespace of ours that is being deleted may take


def create(job: Job, api: Api) -> None:
    """Look at each namespace in `names`, and wait for those of ours that are being deleted.

    Raises:
        TaskError: a namespace exists and does not carry our owner label.
    """
    existing = {name: api.get(f"/api/v1/namespaces/{name}") for name in job.texts("names")}
    for name, item in existing.items():
        if item is not None:
            refuse_foreign(name, item, job.owner)
    for name, item in existing.items():
        if item is not None and is_ending(item):
            _wait_until_gone(api, name)


def delete(job: Job, api: Api) -> None:
    """Nothing of this stays behind."""


def refuse_foreign(name: str, item: Json, owner: str) -> None:
    """Raises TaskError unless the namespace carries the owner's label. Pure."""
    whose = label(item, names.OWNER_LABEL)
    if whose == owner:
        return
    if whose:
        stack = label(item, names.STACK_LABEL) or "of unknown name"
        belongs = (
            f"belongs to stack {stack} of another state, such as a colleague's (owner {whose})"
        )
    else:
        belongs = "was not made by this program"
    raise TaskError(
        f"namespace: {name!r} exists on the cluster and {belongs}, so it is left as it is: "
        "`pulumi destroy` of this stack would delete it with all that is in it. Choose another "
        "name, and on the same machine also another data folder: "
        "pulumi config set namespace NAME; pulumi config set dataRoot FOLDER"
    )


def _wait_until_gone(api: Api, name: str) -> None:
    def ask() -> str:
        item = api.get(f"/api/v1/namespaces/{name}")
        if item is None or not is_ending(item):
            return ""
        conditions = parts(part(item, "status"), "conditions")
        said = [str(c.get("message")) for c in conditions if c.get("status") == "True"]
        return "; ".join(said) or "it is being deleted"

    wait_for(f"namespace {name} of a former `pulumi up` to be gone", ask, END_SECONDS)
