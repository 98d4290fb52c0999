"""Task `keep-claim`: checks that the stack may make its claim. On `destroy`, keeps the claim."""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.kept import kept_by, leave
from infra.kube.objects import Json, is_ending, label
from infra.kube.paths import CLAIMS
from infra.kube.say import say
from infra.kube.volumes.left_claims import refuse_left_claims
from infra.kube.volumes.use_claim import needs_of, refuse_problems

CLAIM = f"{CLAIMS}/{{}}"


def create(job: Job, api: Api) -> None:
    """Check that the stack may make the job's `claim`.

    If there is a claim of this name, it must belong to this stack or have been left by it.

    Raises:
        TaskError: the claim is somebody else's or is being deleted, or the cluster cannot provide
            the volume that the settings ask for.
    """
    refuse_left_claims(job, api)
    name = job.text("claim")
    item = api.get(CLAIM.format(job.namespace, name))
    if item is not None:
        refuse_other(item, job)
    refuse_problems(api, needs_of(job, is_there=False))
    if item is not None and kept_by(item):
        say(f"claim {name}, which a former `pulumi destroy` has kept, is taken up again")


def delete(job: Job, api: Api) -> None:
    """If the job says that the claim is kept, mark it as left by this stack."""
    name = job.text("claim")
    if job.fields.get("kept"):
        path = CLAIM.format(job.namespace, name)
        leave(api, path, job.owner, job.stack, f"claim {name} with the data")


def refuse_other(item: Json, job: Job) -> None:
    """Raise TaskError unless the claim is ours or was left by our stack, and is not being deleted.

    This function is pure.
    """
    name = f"{job.namespace}/{job.text('claim')}"
    owner, left_by = label(item, names.OWNER_LABEL), kept_by(item)
    if owner != job.owner and left_by != job.stack:
        stack = label(item, names.STACK_LABEL) if owner else left_by
        whose = f"belongs to stack {stack}" if stack else "was not made by this program"
        if owner and not stack:
            whose = f"belongs to a stack of unknown name (owner {owner})"
        raise TaskError(
            f"storage: the claim {name} exists and {whose}, so it is left as it is. To train on "
            "its volume, set storage: existing-claim; else set another namespace"
        )
    if is_ending(item):
        raise TaskError(
            f"storage: the claim {name} is being deleted, and waits for the pods that use it; "
            f"look for them with `kubectl -n {job.namespace} get pods`, end them, and try again"
        )
