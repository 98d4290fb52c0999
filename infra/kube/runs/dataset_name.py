"""Task `dataset-name`: refuses a data set whose name another stack uses for other data by now.

The program has asked the same at its start. Since then the image was brought and files were sent,
and another stack whose `up` began at the same time may have made its data set meanwhile.
"""

from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.runs.dataset_findings import DatasetUse, dataset_findings


def create(job: Job, api: Api) -> None:
    """Look for a data set of another stack with the same name, the same volume and other data.

    The field `claim` is the claim of the volume, and `dataset` is the section `dataset` of the
    run's configuration.

    Raises:
        TaskError: there is one. The text names its stack, and what to do.
        ApiError: the API server refuses a request for another reason than missing rights.
    """
    (dataset,) = job.mappings("dataset")
    use = DatasetUse(job.namespace, job.text("claim"), job.owner, dataset)
    if problems := dataset_findings(api, use).problems:
        raise TaskError(problems[0])
