"""An object that the API server checks as if it were made, and that is never made (dryRun)."""

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.objects import Json

NO_ANSWER = "failed calling webhook"  # in the API server's words about a webhook that is down


class WebhookError(Exception):
    """A webhook that has to be asked does not answer, so the cluster refuses such objects now."""


def checked(api: Api, path: str, item: Json) -> Json:
    """The object as it would be.

    Args:
        api: the cluster.
        path: of the collection.
        item: the object.

    Raises:
        ApiError: the API server would refuse it.
        WebhookError: it refuses it now, because a webhook does not answer.
        UnreachableError: it does not answer.
    """
    try:
        return api.request("POST", path, item, query={"dryRun": "All"})
    except (ApiError, UnreachableError) as reason:
        if NO_ANSWER in str(reason):
            raise WebhookError(str(reason)) from None
        raise
