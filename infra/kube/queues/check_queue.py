"""Task `queue`: refuses a queue that cannot take the run, before the run is made."""

from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.queues.queue_findings import queue_findings
from infra.kube.queues.volcano import volcano_queue_findings


def create(job: Job, api: Api) -> None:
    """Check Kueue's queue (`queue`, `priority` and `place` in the job), or `volcano_queue`.

    Raises:
        TaskError: the queue cannot take the run. The text has each reason and the way out.
    """
    if "volcano_queue" in job.fields:
        found = volcano_queue_findings(api, job.text("volcano_queue"))
    else:
        names = (job.text("queue"), job.text("priority"))
        level = job.text("place") if "place" in job.fields else ""
        found = queue_findings(api, job.namespace, *names, level=level)
    if found.problems:
        raise TaskError("\n".join(found.problems))
