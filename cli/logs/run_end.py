"""Finds out whether a run is over, so that no new pod of it will write any lines."""

from infra.kube.api_server.api import Api
from infra.kube.errors import FORBIDDEN, ApiError, TaskError
from infra.kube.runs.steer import find_record
from infra.kube.runs.workload_now import workload_now
from infra.kube.workload import is_suspended, true_condition


def is_over(api: Api, namespace: str, owner: str) -> bool:
    """Whether the run has finished, failed or was suspended, or its workload is gone.

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
    except (TaskError, ValueError):  # there is no record, or it cannot be read
        return True
    except ApiError as refused:
        if refused.status != FORBIDDEN:
            raise
        return True
    if item is None or is_suspended(item, record.suspend):
        return True
    return bool(true_condition(item, list(record.over)))
