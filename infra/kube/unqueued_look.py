"""Whether Kueue holds back what is in no queue: looks, and changes nothing.

By its configuration Kueue may suspend each Job that names no queue, for ever
(`manageJobsWithoutQueueName`), or put it into the LocalQueue `default` of its namespace. Few may
read that configuration. So a Job is sent that is never made (dryRun): it comes back as it would be.
"""

from infra.kube.api import Api
from infra.kube.errors import ApiError, TaskError
from infra.kube.findings import Findings
from infra.kube.kueue import GROUP, kueue_workload
from infra.kube.objects import Json, label, part
from infra.names import QUEUE_LABEL

JOBS = "/apis/batch/v1/namespaces/{}/jobs"
TRIAL = "disttrain-trial-job"  # name of a Job that is never made


def unqueued_findings(
    api: Api, namespace: str, pod: Json, queue: str, *, has_dataset: bool
) -> Findings:
    """Try a Job without a queue. Raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        namespace: of the run.
        pod: one of the run's, as the API server takes it.
        queue: the setting `queue`; empty: the run is in none.
        has_dataset: whether the stack also makes a Job that prepares a data set, which is in none.
    """
    found = Findings()
    if api.get(f"/apis/{GROUP}") is None:
        return found
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": TRIAL},
        "spec": {"suspend": False, "template": {"spec": pod["spec"]}},
    }
    try:
        made = api.request("POST", JOBS.format(namespace), job, query={"dryRun": "All"})
    except ApiError:  # no such namespace yet, or a pod that is refused, of which others tell
        return found
    given = label(made, QUEUE_LABEL)
    if given and not queue:
        found.notes.append(
            f"Kueue puts what names no queue into LocalQueue {given} of namespace {namespace}. "
            f"Name it, so that the outputs show the place: pulumi config set queue {given}"
        )
    elif not given and part(made, "spec").get("suspend") and (has_dataset or not queue):
        found.problems.append(_held_back(namespace, queue, has_dataset=has_dataset))
    return found


def held_without_queue(api: Api, namespace: str, item: Json) -> str:
    """Why a workload that names no queue is suspended; empty: it names one, or it is not Kueue.

    Kueue has made a Workload for it all the same.

    Args:
        api: the cluster.
        namespace: of the run.
        item: the run's workload.
    """
    if label(item, QUEUE_LABEL):
        return ""
    try:
        own = kueue_workload(api, namespace, item)
    except (ApiError, TaskError):  # these credentials may not read it
        return ""
    return (
        "Kueue holds it back, because it names no queue (manageJobsWithoutQueueName in Kueue's "
        f"configuration). Name one of those that `kubectl get localqueues -n {namespace}` shows: "
        "pulumi config set queue NAME"
        if own
        else ""
    )


def _held_back(namespace: str, queue: str, *, has_dataset: bool) -> str:
    what = [*([] if queue else ["the run"])]
    what += ["the Job that prepares the data set"] if has_dataset else []
    return (
        f"queue: {queue!r} cannot be used here: Kueue suspends every Job of namespace {namespace} "
        f"that names no queue (manageJobsWithoutQueueName), so {' and '.join(what)} would wait for "
        "ever. Ask the administrator of Kueue to leave this namespace out "
        "(managedJobsNamespaceSelector in Kueue's configuration). A run with queue is in its queue "
        "all the same"
    )
