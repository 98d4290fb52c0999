"""Task `replaced`: waits until a workload that the engine has replaced is gone, with its pods.

The provider does not wait for the end of what it deletes (`skipAwait` in infra/objects.py). So it
would change the object that is just going instead of making another one, and `pulumi up` would end
well without a workload.
"""

from infra.kube.api_server.api import Api
from infra.kube.job import Job
from infra.kube.objects import is_ending
from infra.kube.runs.hand_over import Plan, await_end, workload_now


def create(job: Job, api: Api) -> None:
    """Wait while the workload of this name is being deleted; one that stays is left to the engine.

    Raises:
        TaskError: it does not go; with what keeps it.
    """
    plan = Plan.of(job)
    item = workload_now(api, job.namespace, plan.workload)
    if item is not None and is_ending(item):
        await_end(job, api, plan, item)


def delete(job: Job, api: Api) -> None:
    """Nothing of the wait stays behind."""
    del job, api
