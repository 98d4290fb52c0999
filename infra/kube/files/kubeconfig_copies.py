"""Task `copies`: removes the provider's copies of the kubeconfig (infra/kube/api_server/copies.py).

Every task removes the copies when it ends, and this task does nothing else. The engine records it
before the provider starts. So `destroy` has at least this task to run, even if `up` was killed
before it had registered another one.
"""

from infra.kube.api_server.api import Api
from infra.kube.job import Job


def create(job: Job, api: Api) -> None:
    """Do nothing: the copies are removed at the end of every task, also of this one."""
    del job, api


def delete(job: Job, api: Api) -> None:
    """Do nothing, for the same reason as `create`."""
    del job, api
