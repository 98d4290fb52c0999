"""Runs a program of this project in a pod, and reads the JSON object that it prints."""

import json
from typing import Any

from cli.followed_log import followed_log
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import execute
from infra.kube.errors import TaskError
from infra.kube.files.task_pod import START_SECONDS, TaskPod, running
from infra.kube.objects import Json, container_of, name_of
from infra.kube.paths import pod_path
from infra.kube.say import last_line


def ask_in_pod(
    api: Api, namespace: str, pod: Json, program: str, *words: str, failed: str
) -> dict[str, Any]:
    """Run a Python program in a pod that is running, and return the JSON object that it prints.

    Args:
        api: the cluster.
        namespace: the namespace of the pod.
        pod: the pod, as the API server returned it.
        program: the text of the Python program.
        words: the arguments of the program.
        failed: the beginning of the error text. The last line of the program's standard error
            follows it.

    Raises:
        TaskError: the program failed.
        ApiError: these credentials may not run commands in the pod.
        UnreachableError: the connection was cut or refused.
    """
    path, command = pod_path(namespace, name_of(pod)), ["python3", "-c", program, *words]
    ended = execute(api, path, container_of(pod), command)
    if ended.exit_code:
        raise TaskError(f"{failed}: {last_line(ended.stderr)}")
    return json.loads(ended.stdout)


def ask_by_pod(
    api: Api, pod: TaskPod, *, failed: str, start_seconds: float = START_SECONDS, name: str = ""
) -> tuple[dict[str, Any], str]:
    """Run a pod to its end, and read the JSON object in the last line of its log.

    Args:
        api: the cluster.
        pod: the description of the pod.
        failed: the beginning of the text that says why there is no answer.
        start_seconds: the longest time that the pod may take to start.
        name: the name of the pod, if the caller has to know it. With an empty text the pod gets a
            new name.

    Returns:
        The JSON object and an empty text; or an empty object, and why the pod gave no answer.

    Raises:
        TaskError: the pod does not start.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    with running(api, pod, start_seconds=start_seconds, name=name) as path:
        text = b"".join(followed_log(api, path, pod.task)).decode(errors="replace").strip()
    last = text.rpartition("\n")[2]
    if not last.startswith("{"):
        return {}, f"{failed}: {last[:200] or 'no words'}"
    return json.loads(last), ""
