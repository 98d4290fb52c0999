"""Lets the API server check an object as if it were made, without making it (dryRun)."""

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.objects import Json

NO_ANSWER = "failed calling webhook"  # in the API server's message if a webhook is down


class WebhookError(Exception):
    """A webhook does not answer, so at the moment the API server refuses such objects."""


def checked(api: Api, path: str, item: Json) -> Json:
    """The object as the API server would make it.

    Args:
        api: the cluster.
        path: the path of the object's collection.
        item: the object.

    Raises:
        ApiError: the API server would refuse the object.
        WebhookError: the API server refuses it at the moment, because a webhook does not answer.
        UnreachableError: the API server does not answer.
    """
    try:
        return api.request("POST", path, item, query={"dryRun": "All"})
    except (ApiError, UnreachableError) as reason:
        if NO_ANSWER in str(reason):
            raise WebhookError(str(reason)) from None
        raise
