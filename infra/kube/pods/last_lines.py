"""Prints the last lines of pods' logs after a wait for the pods has failed."""

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.objects import Json, container_of
from infra.kube.paths import PODS, log_path, pod_path
from infra.kube.say import say

LINES = 20
MOST_PODS = 8
LONGEST_SECONDS = 5.0  # the longest wait for a log, because a lost machine gives no answer


def last_lines(api: Api, namespace: str, selector: str) -> None:
    """Print the last lines of up to MOST_PODS pods.

    If a container was restarted, the lines are those that it wrote before the restart.
    """
    try:
        pods = api.list(PODS.format(namespace), selector)
        for pod in pods[:MOST_PODS]:
            say(f"--- last lines of pod {pod['metadata']['name']}")
            say(_log(api, namespace, pod))
        if len(pods) > MOST_PODS:
            say(f"--- and {len(pods) - MOST_PODS} more pods")
    except (ApiError, UnreachableError) as reason:
        say(f"the last lines of the pods cannot be read: {reason}")


def _log(api: Api, namespace: str, pod: Json) -> str:
    path = log_path(pod_path(namespace, pod["metadata"]["name"]))
    container = container_of(pod)
    reason: Exception | None = None
    for previous in ("true", "false"):
        query = {"container": container, "tailLines": str(LINES), "previous": previous}
        try:
            return api.text(path, query, LONGEST_SECONDS).rstrip() or "(it wrote nothing)"
        except ApiError as error:
            reason = error
        except UnreachableError as error:  # The machine is lost, and with it both logs of the pod.
            reason = error
            break
    return f"(no log: {reason})"
