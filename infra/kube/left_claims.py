"""Refuses to take a claim away that runs of other stacks mount."""

from infra.kube import names
from infra.kube.api import Api
from infra.kube.errors import TaskError
from infra.kube.findings import list_if_allowed
from infra.kube.job import Job
from infra.kube.objects import name_of
from infra.kube.record import COLLECTION, SELECTOR, destroy_commands, stacks_of_others
from infra.kube.volume_place import CLAIMS

STORAGE = f"{names.COMPONENT_LABEL}=storage"


def refuse_left_claims(job: Job, api: Api) -> None:
    """Another storage, folder or size means another claim than the job's `claim`.

    The engine deletes our old claim at the end of `pulumi up`. The pods of our own run have ended
    by then. If pods of another stack still mount the claim, the cluster keeps it in the phase
    Terminating, and `up` waits for its end until the limit and fails. Where the credentials may not
    list claims, nobody knows whether there is an old one, and nothing is refused.

    Raises:
        TaskError: runs of other stacks stand on the platform, and the claim is going to change.
    """
    claims, _ = list_if_allowed(
        api, CLAIMS.format(job.namespace), f"{STORAGE},{names.OWNER_LABEL}={job.owner}"
    )
    left = sorted({name_of(claim) for claim in claims or ()} - {job.text("claim")})
    if not left:
        return
    others = stacks_of_others(api.list(COLLECTION.format(job.namespace), SELECTOR), job.owner)
    if others:
        raise TaskError(
            f"storage: the settings lead to another claim than {', '.join(left)} of namespace "
            f"{job.namespace}, and runs of other stacks use that one: {', '.join(others)}. "
            "Neither the claim nor its data were changed. Set storage, storageOptions, dataRoot "
            "and dataSize as they were, or first end those runs (the data is kept):"
            f"{destroy_commands(others)}"
        )
