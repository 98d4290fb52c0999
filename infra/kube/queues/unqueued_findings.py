"""Checks whether Kueue holds back Jobs that name no queue. It changes nothing.

By its configuration, Kueue may suspend each Job that names no queue forever
(`manageJobsWithoutQueueName`), or put it into the LocalQueue `default` of its namespace. Few users
may read that configuration. So the API server is asked what it would make of such a Job (dryRun).

A run that Kueue puts into a queue is stopped and resumed through Kueue's Workload of the run. That
needs more rights than a run in no queue.
"""

from infra.kube.api_server.api import Api
from infra.kube.api_server.dry_run import WebhookError, checked
from infra.kube.api_server.findings import Findings
from infra.kube.api_server.rights import Need, as_roles, missing_rights
from infra.kube.errors import ApiError, TaskError
from infra.kube.objects import Json, label, part
from infra.kube.paths import JOBS
from infra.kube.queues.kueue import GROUP, WORKLOAD_VERBS, kueue_workload
from infra.names import QUEUE_LABEL

TRIAL = "disttrain-trial-job"  # the name of a Job that is never made
NO_QUEUE = (
    "is in no queue, and Kueue, which shares this cluster out, is set up to let nothing start that "
    "is in none (manageJobsWithoutQueueName: true)"
)


def unqueued_findings(
    api: Api, namespace: str, pod: Json, queue: str, *, has_dataset: bool, can_queue: bool
) -> Findings:
    """Try what the cluster makes of a Job without a queue. Raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        pod: the manifest of one of the run's pods.
        queue: the setting `queue`; empty: the run names no queue.
        has_dataset: whether the stack also makes a Job that prepares a data set. It names no queue.
        can_queue: whether a queue of Kueue can hold back the run's kind of workload. If it cannot,
            the trial says nothing about the run.
    """
    found, run_waits = Findings(), can_queue and not queue
    if api.get(f"/apis/{GROUP}") is None:
        return found
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": TRIAL},
        "spec": {"suspend": False, "template": {"spec": pod["spec"]}},
    }
    try:
        made = checked(api, JOBS.format(namespace), job)
    except ApiError:  # There is no such namespace yet, or other checks report the refused pod.
        return found
    except WebhookError as reason:
        found.refused_now.append(f"new Jobs in namespace {namespace}: {reason}")
        return found
    given = label(made, QUEUE_LABEL)
    if given and run_waits:
        found.notes.append(
            f"the setting queue is empty, so this cluster's Kueue puts the run into queue {given} "
            f"of namespace {namespace}, where it may have to wait. To see its place there in the "
            f"outputs of pulumi up, name the queue: pulumi config set queue {given}"
        )
        found.problems += _missing_rights(api, namespace, given)
    elif not given and part(made, "spec").get("suspend") and (has_dataset or run_waits):
        found.problems.append(_held_back(namespace, queue, has_dataset, run_waits))
    return found


def _missing_rights(api: Api, namespace: str, queue: str) -> list[str]:
    needs = [Need(GROUP, "workloads", verb, namespace) for verb in WORKLOAD_VERBS]
    missing = missing_rights(api, needs, namespace)
    if not missing:
        return []
    return [
        f"kubeconfig: its user may not do all that the run needs in queue {queue} of namespace "
        f"{namespace}, into which this cluster's Kueue puts it: the run is stopped and resumed by "
        "the Workload that Kueue makes of it. An administrator can apply this role and bind it to "
        f"the user:\n{as_roles(missing, f'{namespace}-queues')}"
    ]


def held_without_queue(api: Api, namespace: str, item: Json) -> str:
    """Why Kueue holds back a workload that names no queue.

    The text is empty if the workload names a queue, or if Kueue has made no Workload for it and so
    does not hold it back.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        item: the run's workload, which is suspended, or whose pods have scheduling gates.
    """
    if label(item, QUEUE_LABEL):
        return ""
    try:
        own = kueue_workload(api, namespace, item)
    except (ApiError, TaskError):  # The Workload cannot be read.
        return ""
    return f"it {NO_QUEUE}. {_choose_one(namespace)}" if own else ""


def _held_back(namespace: str, queue: str, has_dataset: bool, run_waits: bool) -> str:
    """The problem that Kueue would never start a Job without a queue, and what to do about it.

    The user can put the run into a queue. But the Job of the data set names no queue, whatever the
    settings are.
    """
    start = f"queue: {queue!r} cannot be used here"
    if not has_dataset:
        return f"{start}: the run {NO_QUEUE}, so it would wait for ever. {_choose_one(namespace)}"
    what = "the Job that prepares the data set"
    also = ". The run itself would wait too" if run_waits else ""
    # Since 0.15, Kueue suspends an object that names a queue in a namespace that is left out, and
    # never looks at it again (pkg/controller/jobframework in its source).
    left_out = (
        ""
        if queue
        else ", or to leave the namespace out of Kueue (managedJobsNamespaceSelector in Kueue's "
        "configuration)"
    )
    return (
        f"{start}: {what} {NO_QUEUE}, so it would wait for ever{also}. Ask the administrator of "
        f"Kueue to make a LocalQueue with the name default in the namespace {namespace}, into "
        f"which Kueue puts what is in none{left_out}"
    )


def _choose_one(namespace: str) -> str:
    return (
        f"Put the run into a queue: `kubectl get localqueues -n {namespace}` lists them, and "
        "`pulumi config set queue NAME` with the next `pulumi up` chooses one"
    )
