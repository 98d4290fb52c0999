"""Finds out which rights a hand-over needs on the runs that are in its namespace now.

A hand-over reads the workload of each run of its namespace, to know which of them hold GPUs. The
runs of other stacks may be of other kinds than the stack's own run.
"""

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import list_if_allowed
from infra.kube.api_server.rights import Need
from infra.kube.errors import ApiError
from infra.kube.record import COLLECTION, SELECTOR, parse_record


def needs_for_runs(api: Api, namespace: str) -> list[Need]:
    """The rights to read the workloads of all runs in a namespace, each once.

    Records that cannot be read are left out, because the hand-over itself reports them. The right
    to suspend a workload is left out too, because it is not needed with each setting of `whenBusy`.

    Raises:
        ApiError, UnreachableError: the cluster refuses for another reason than a missing right, or
            does not answer.
    """
    records, _ = list_if_allowed(api, COLLECTION.format(namespace), SELECTOR)
    found = list[Need]()
    for item in records or []:
        try:
            workload = parse_record(item).workload
            path = api.path(workload.api_version, workload.kind, namespace)
        except ValueError:
            continue
        except ApiError as error:
            if error.status != 404:  # 404: the cluster no longer knows the kind
                raise
            continue
        group = workload.api_version.rpartition("/")[0]
        found.append(Need(group, path.rpartition("/")[2], "get", namespace))
    return list(dict.fromkeys(found))
