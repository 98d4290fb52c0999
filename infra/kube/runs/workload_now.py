"""Reads the workload of a run, even if the workload or the definition of its kind is gone."""

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from infra.kube.objects import Json
from infra.kube.workload import Workload


def workload_now(api: Api, namespace: str, workload: Workload) -> Json | None:
    """The workload's object; None: it does not exist, or the cluster does not know its kind."""
    try:
        return api.get(api.path(workload.api_version, workload.kind, namespace, workload.name))
    except ApiError as error:
        if error.status == 404:
            return None
        raise
