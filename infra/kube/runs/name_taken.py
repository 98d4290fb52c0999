"""Refuses a name for a run's workload that the run of another stack still uses.

The engine deletes objects by their names. As long as the state of another stack contains a workload
of this name, the `pulumi destroy` of that stack would delete ours, if ours had the same name.
"""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import label
from infra.kube.record import (
    COLLECTION,
    SELECTOR,
    Record,
    destroy_commands,
    parse_record,
    record_name,
)
from infra.kube.workload import Workload

OWN_NAMES = "give this run names of its own: pulumi config set instance NAME (then pulumi up)"


def refuse_name_of_other_run(job: Job, api: Api, workload: Workload) -> None:
    """Look for the record of another stack's run whose workload has the kind and name of ours.

    Args:
        job: the job of a run that has no workload yet.
        api: the cluster.
        workload: the workload that is to be made.

    Raises:
        TaskError: there is such a run. Its workload is gone or has not been made yet.
    """
    for item in api.list(COLLECTION.format(job.namespace), SELECTOR):
        if label(item, names.OWNER_LABEL) == job.owner:
            continue
        record = parse_record(item)
        if record.workload == workload:
            raise TaskError(_name_is_taken(job, record))


def _name_is_taken(job: Job, record: Record) -> str:
    return (
        f"{record.workload} in namespace {job.namespace} is not there at the moment, but it is the "
        f"run of stack {record.stack}, whose next `pulumi destroy` would delete whatever has this "
        f"name. So {OWN_NAMES}. If the run of that stack is needed no more, end it first (the data "
        f"is kept):{destroy_commands([record.stack])}\n"
        "If that stack is lost, remove the record of its run:\n"
        f"  kubectl -n {job.namespace} delete configmap {record_name(record.owner)}"
    )
