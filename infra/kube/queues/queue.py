"""Task `queue`: refuses a queue that a run cannot be put into, before it is made."""

from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.queues.queue_look import queue_findings
from infra.kube.queues.volcano import volcano_queue_findings


def create(job: Job, api: Api) -> None:
    """Look at the fields `queue`, `priority` and `place`, of Kueue, or at `volcano_queue`.

    Raises:
        TaskError: names each reason and the way out.
    """
    if "volcano_queue" in job.fields:
        found = volcano_queue_findings(api, job.text("volcano_queue"))
    else:
        names = (job.text("queue"), job.text("priority"))
        place = job.text("place") if "place" in job.fields else ""
        found = queue_findings(api, job.namespace, *names, place=place)
    if found.problems:
        raise TaskError("\n".join(found.problems))


def delete(job: Job, api: Api) -> None:
    """Nothing of this stays behind."""
    del job, api
