"""Task `replaced`: waits until a workload that the engine replaces is gone, with its pods.

The provider does not wait until the objects that it deletes are gone (`skipAwait` in
infra/objects.py). Without this task it would change the old object, which is being deleted, instead
of making a new one, and `pulumi up` would end well without a workload.
"""

from infra.kube.api_server.api import Api
from infra.kube.job import Job
from infra.kube.objects import is_ending
from infra.kube.runs.hand_over_plan import Plan
from infra.kube.runs.own_workload import await_end
from infra.kube.runs.workload_now import workload_now


def create(job: Job, api: Api) -> None:
    """Wait while the workload of this name is being deleted.

    A workload that is not being deleted is left to the engine.

    Raises:
        TaskError: the deletion takes too long. The text says what keeps the workload.
    """
    plan = Plan.of(job)
    item = workload_now(api, job.namespace, plan.workload)
    if item is not None and is_ending(item):
        await_end(job, api, plan, item)
