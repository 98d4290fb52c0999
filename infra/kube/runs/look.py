"""A quick look at our run from the Pulumi program: does `hand-over` have to run again?

The program gives the answer to the task as its `request`. While our run stands, the answer is what
the task has noted in the run's record: nothing changes, nothing runs. When another run has
suspended ours, or ours is gone, the answer is a text that the record does not hold, and the same
for the preview and the update: then `pulumi up` hands over again, which resumes the run.

So it is for a run that has failed after its `pulumi up` had ended well. That is not made again, but
the next `pulumi up` ends with the failure, and does not look as if all were well.
"""

from typing import cast

from infra.kube import names
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.quick_look import quick_look
from infra.kube.errors import ApiError
from infra.kube.objects import Json, label
from infra.kube.paths import NAMESPACES
from infra.kube.queues.kueue import is_stopped
from infra.kube.record import parse_record, record_path
from infra.kube.workload import failed_condition

SECONDS = 3.0


def look(access: Access, namespace: str, owner: str) -> str:
    """The `request` for the task `hand-over`; empty when nobody answers. Raises nothing.

    Args:
        access: how the cluster is reached.
        namespace: of the run.
        owner: the stack's uuid.
    """
    try:
        with quick_look(access, SECONDS) as api:
            return _request(api, namespace, owner)
    except Exception:  # whatever it is: a look must not end a preview
        return ""


def _request(api: Api, namespace: str, owner: str) -> str:
    item = api.get(record_path(namespace, owner))
    if item is None:
        place = api.get(f"{NAMESPACES}/{namespace}")
        uid = cast(Json, place["metadata"])["uid"] if place else "none"
        return f"no record in namespace {uid}"
    record = parse_record(item)
    new = f"record {record.version}"
    workload = record.workload
    try:
        path = api.path(workload.api_version, workload.kind, namespace, workload.name)
        found = api.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        found = None
    if found is None and record.had_finished:
        return record.request  # nothing has to make place for what ends at once
    if found is None or label(found, names.OWNER_LABEL) != owner:
        return new
    if failed_condition(found, list(record.over)):
        return new
    return new if is_stopped(api, namespace, found, record.suspend) else record.request
