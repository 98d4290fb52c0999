"""Finds out whether a run is over, so that no new pod of it will write any lines."""

from cli.status.snapshot import see_run
from infra.kube.api_server.api import Api
from infra.kube.errors import FORBIDDEN, ApiError, TaskError
from infra.kube.queues.kueue import is_stopped
from infra.kube.runs.busy import other_run
from infra.kube.runs.steer import find_record
from infra.kube.runs.workload_now import workload_now
from infra.kube.workload import true_condition


def is_over(api: Api, namespace: str, owner: str) -> bool:
    """Whether the run has finished, failed or was stopped, or its workload is gone.

    A run that waits in a queue, or whose workload `pulumi up` is about to make, is not over.

    It is True as well if these credentials may not read that, or if the run has no record.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        owner: the owner id of the run's stack.

    Raises:
        ApiError, UnreachableError: the cluster refuses for another reason, or does not answer.
    """
    try:
        record = find_record(api, namespace, owner)
        item = workload_now(api, namespace, record.workload)
        if item is None:
            return other_run(record, None, api.now()) is None
        stopped = is_stopped(api, namespace, item, record.suspend)
    except (TaskError, ValueError):  # there is no record, or it cannot be read
        return True
    except ApiError as refused:
        if refused.status != FORBIDDEN:
            raise
        return True
    return stopped or bool(true_condition(item, list(record.over)))


def state_text(api: Api, namespace: str, owner: str) -> str:
    """Return the state of the run and the reason for it, as `./disttrain status` has them.

    If they cannot be read, the text says why. The arguments are as for `is_over`.
    """
    try:
        status, _ = see_run(api, find_record(api, namespace, owner))
    except (ApiError, TaskError, ValueError) as reason:
        return str(reason)
    return f"{status.state}: {status.detail}" if status.detail else status.state
