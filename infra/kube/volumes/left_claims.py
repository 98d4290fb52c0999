"""Refuses to take a claim away that runs of other stacks mount, or whose data would be purged.

Another storage, folder or size means another claim. The engine deletes our old claim at the end of
`pulumi up`.
"""

from collections.abc import Sequence

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import list_if_allowed
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, annotation, name_of, part
from infra.kube.paths import CLAIMS
from infra.kube.record import COLLECTION, SELECTOR, destroy_commands, stacks_of_others

STORAGE = f"{names.COMPONENT_LABEL}=storage"


def refuse_left_claims(job: Job, api: Api) -> None:
    """Look for our claims beside the job's `claim`; see also `purge_problem`.

    The pods of our own run have ended when the engine deletes them. If pods of another stack still
    mount a claim, the cluster keeps it in the phase Terminating, and `up` waits for its end until
    the limit and fails. Where the credentials may not list claims, nobody knows whether there is an
    old one, and nothing is refused.

    Raises:
        TaskError: the claim is going to change while runs of other stacks stand on the platform, or
            while `destroy` was told to purge its data.
    """
    mine = f"{STORAGE},{names.OWNER_LABEL}={job.owner}"
    left = left_claims(api, job.namespace, mine, job.text("claim"))
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
    """The claims of the selector but for `claim`; none where they may not be listed."""
    claims, _ = list_if_allowed(api, CLAIMS.format(namespace), selector)
    return [each for each in claims or () if name_of(each) != claim]


def purge_problem(left: Sequence[Json], *, has_data_folder: bool) -> str:
    """Why a change of the storage would delete data, and the way out; empty: it would not. Pure.

    What goes with the old settings does what these said last. Where that was `purge`, the data
    would go, also where the settings say `keep` by now.

    Args:
        left: our claims that the change takes away, also in another namespace.
        has_data_folder: the stack keeps its command of the data folder; else that goes, too, and
            purges the folder.
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
