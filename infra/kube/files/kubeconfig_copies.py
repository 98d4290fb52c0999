"""Task `copies`: removes the provider's copies of the kubeconfig (infra/kube/api_server/copies.py).

Every task does so when it ends, and this one does nothing else. It stands in the state before the
provider starts, so that `destroy` has a task where `up` was killed before it had made another one.
"""

from infra.kube.api_server.api import Api
from infra.kube.job import Job


def create(job: Job, api: Api) -> None:
    """Do nothing: the copies are removed at the end of every task, so of this one, too."""
    del job, api


def delete(job: Job, api: Api) -> None:
    """Do nothing, for the same reason as `create`."""
    del job, api
