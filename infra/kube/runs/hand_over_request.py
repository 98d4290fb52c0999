"""Decides in the Pulumi program whether the task `hand-over` has to run again.

The program passes the answer to the task as its input `request`. The task notes the request in the
run's record. As long as the run trains, the answer is the noted request, so the input does not
change, and the engine does not run the task. If another run or the user has suspended this run, or
if its workload is gone, the answer differs from the noted request, and is the same for the preview
and the update. Then `pulumi up` runs the hand-over again, which resumes a suspended run.

The same applies to a run that failed after its `pulumi up` had ended well. The run is not made
again, but the next `pulumi up` ends with the failure instead of reporting success.
"""

from typing import cast

from infra.kube import names
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.read_only import read_only_api
from infra.kube.objects import Json, label
from infra.kube.paths import NAMESPACES
from infra.kube.queues.kueue import is_stopped
from infra.kube.record import read_record
from infra.kube.runs.workload_now import workload_now
from infra.kube.workload import failed_condition

SECONDS = 3.0


def hand_over_request(access: Access, namespace: str, owner: str) -> str:
    """The `request` for the task `hand-over`; empty if the cluster could not be asked.

    This function raises no error.

    Args:
        access: how the cluster is reached.
        namespace: the namespace of the run.
        owner: the owner id of the stack, a uuid.
    """
    try:
        with read_only_api(access, SECONDS) as api:
            return _request(api, namespace, owner)
    except Exception:  # No error here may end a preview.
        return ""


def _request(api: Api, namespace: str, owner: str) -> str:
    record = read_record(api, namespace, owner)
    if record is None:
        found = api.get(f"{NAMESPACES}/{namespace}")
        uid = cast(Json, found["metadata"])["uid"] if found else "none"
        return f"no record in namespace {uid}"
    new = f"record {record.version}"
    found = workload_now(api, namespace, record.workload)
    if found is None and record.had_finished:
        return record.request  # A finished run would end at once, so it needs no place.
    if found is None or label(found, names.OWNER_LABEL) != owner:
        return new
    if failed_condition(found, list(record.over)):
        return new
    return new if is_stopped(api, namespace, found, record.suspend) else record.request
