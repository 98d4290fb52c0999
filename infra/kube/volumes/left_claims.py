"""Refuses a change of the storage that would delete a claim which is still needed.

With another storage, folder or size, the stack has another claim, and the engine deletes the old
one at the end of `pulumi up`. That must not happen while runs of other stacks mount the old claim,
if the data in it would be purged, or if it is the claim that the stack is to have.
"""

from collections.abc import Sequence

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import list_if_allowed, object_at
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, annotation, is_ending, name_of, part
from infra.kube.paths import CLAIMS
from infra.kube.record import COLLECTION, SELECTOR, destroy_commands, stacks_of_others

STORAGE = f"{names.COMPONENT_LABEL}=storage"


def refuse_left_claims(job: Job, api: Api, *, never_kept: bool = False) -> None:
    """Look for claims of this stack other than the job's `claim`, which the engine would delete.

    When the engine deletes them, the pods of this stack's run have ended. But if pods of another
    stack still mount a claim, the cluster keeps the claim in the state Terminating, and `up` waits
    for its end until a time limit and fails. If the credentials may not list claims, it is not
    known whether there is an old one, and nothing is refused. See also `purge_problem` and
    `_refuse_way_back`.

    Args:
        job: the job, with the `claim` that the settings lead to.
        api: the cluster.
        never_kept: whether the kind of storage never keeps a claim that is no longer wanted.

    Raises:
        TaskError: there is an old claim, and runs of other stacks use the platform, or the data of
            the old claim would be purged; or `claim` is itself one that the engine would delete.
    """
    mine = f"{STORAGE},{names.OWNER_LABEL}={job.owner}"
    left = left_claims(api, job.namespace, mine, job.text("claim"))
    if never_kept:
        _refuse_way_back(job, api, left)
    records = api.list(COLLECTION.format(job.namespace), SELECTOR) if left else []
    if others := stacks_of_others(records, job.owner):
        raise TaskError(
            f"storage: the settings lead to another claim than {_named(left)} of namespace "
            f"{job.namespace}, and runs of other stacks use that one: {', '.join(others)}. "
            "Neither the claim nor its data were changed. Set storage, storageOptions, dataRoot "
            "and dataSize as they were, or first end those runs (the data is kept):"
            f"{destroy_commands(others)}"
        )
    elsewhere = list_if_allowed(api, "/api/v1/persistentvolumeclaims", mine)[0] or []
    left += [each for each in elsewhere if part(each, "metadata")["namespace"] != job.namespace]
    if problem := purge_problem(
        left, has_data_folder=bool(job.fields.get("has_data_folder", True))
    ):
        raise TaskError(problem)


def left_claims(api: Api, namespace: str, selector: str, claim: str) -> list[Json]:
    """The claims that `selector` selects, without `claim`.

    The list is also empty if these credentials may not list claims.
    """
    claims, _ = list_if_allowed(api, CLAIMS.format(namespace), selector)
    return [each for each in claims or () if name_of(each) != claim]


def _refuse_way_back(job: Job, api: Api, left: Sequence[Json]) -> None:
    """Refuse to take a change of the storage back that was not finished.

    An `up` that ends early has made the new claim, and the engine's state has the former one for
    deletion. If the settings lead to the former claim again, the engine takes it for a new one,
    and then deletes it by its name, while pods mount it. Only the ages of the claims tell in which
    direction a change goes: the claim that is wanted is the older one only if it is taken back.

    Args:
        job: the job, with the `claim` that the settings lead to.
        api: the cluster.
        left: the other claims of this stack.

    Raises:
        TaskError: one of the other claims is newer than the job's `claim`.
    """
    claim = job.text("claim")
    wanted = object_at(api, f"{CLAIMS.format(job.namespace)}/{claim}") if left else None
    if not isinstance(wanted, dict):
        return
    newer = [each for each in left if not is_ending(each) and _made_at(each) > _made_at(wanted)]
    if newer:
        raise TaskError(
            f"storage: the settings lead back to claim {claim} of namespace {job.namespace}, and "
            f"the change to claim {_named(newer)} was not finished. Pulumi would still delete "
            f"{claim} as the former one, under the pods that mount it. Nothing was changed. Set "
            "storage, storageOptions, dataRoot and dataSize as they were for that change, and run "
            "`pulumi up` until it has ended well; then change them back. If it cannot end well, "
            "`pulumi destroy` of the runs and of this stack leaves the data, and the next `pulumi "
            "up` uses them"
        )


def _made_at(item: Json) -> str:
    return str(part(item, "metadata").get("creationTimestamp") or "")


def purge_problem(left: Sequence[Json], *, has_data_folder: bool) -> str:
    """Why a change of the storage would delete data, and what to do; empty: it would not.

    This function is pure.

    When the engine deletes an object, it does what the last `pulumi up` has recorded in the state.
    If `dataOnDestroy` was `purge` then, the data would be deleted, even if the settings say `keep`
    by now.

    Args:
        left: the claims of this stack that the change would delete, also in other namespaces.
        has_data_folder: whether the stack keeps its command of the data folder. If it does not,
            the engine deletes this command too, and that purges the folder.
    """
    goes = {names.PURGES_CLAIM, *([] if has_data_folder else [names.PURGES_FOLDER])}
    purged = [each for each in left if annotation(each, names.PURGES_ANNOTATION) in goes]
    if not purged:
        return ""
    return (
        "storage: this change would delete the data of the former storage "
        f"(claim {_named(purged)}), because the last `pulumi up` was told dataOnDestroy: purge. "
        "Nothing was changed. Do it in two steps: first set namespace, storage, storageOptions, "
        "dataRoot and dataSize as they were, with dataOnDestroy: keep, and run `pulumi up`; then "
        "set the other storage or namespace, and run it again"
    )


def _named(claims: Sequence[Json]) -> str:
    return ", ".join(sorted(map(name_of, claims)))
