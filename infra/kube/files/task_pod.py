"""A short-lived pod on the claim, which ends with the command that started it."""

import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.objects import Json, part
from infra.kube.paths import PODS
from infra.kube.pods.report import report_pod
from infra.kube.say import say
from infra.kube.waiting import STUCK_SECONDS, Patience, wait_for
from infra.names import GPU_RESOURCE, GPU_TOLERATION

DATA_MOUNT = "/data"
START_SECONDS = 600  # an image may have to be pulled first


@dataclass(frozen=True)
class TaskPod:
    """What a pod of a task is made of."""

    task: str
    owner: str
    namespace: str
    image: str
    command: tuple[str, ...]
    claim: str
    deadline_seconds: int
    uid: int = 1000
    read_only: bool = False
    environment: dict[str, str] = field(default_factory=lambda: {})
    placement: dict[str, Any] = field(default_factory=lambda: {})
    """More of the pod's spec, such as nodeSelector, tolerations and imagePullSecrets. What it has
    in securityContext is added to the pod's own, and resources are its container's."""
    gpus: int = 0
    """How many whole GPUs it asks for."""


def pod_manifest(pod: TaskPod, name: str) -> Json:
    """The pod. Pure."""
    placement = dict(pod.placement)
    limits = part({"resources": placement.pop("resources", {})}, "resources", "limits")
    limits = {**limits, **({GPU_RESOURCE: str(pod.gpus)} if pod.gpus else {})}
    container = {
        "name": pod.task,
        "image": pod.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(pod.command),
        "env": [{"name": key, "value": value} for key, value in pod.environment.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {
            "requests": {"cpu": "100m", "memory": "64Mi"},
            **({"limits": limits} if limits else {}),
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "data", "mountPath": DATA_MOUNT, "readOnly": pod.read_only}],
    }
    claim = {"claimName": pod.claim, "readOnly": pod.read_only}
    spec: Json = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": pod.deadline_seconds,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": pod.uid,
            "runAsGroup": pod.uid,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [GPU_TOLERATION],
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": claim}],
    }
    security = {**spec["securityContext"], **placement.get("securityContext", {})}
    labels = {
        names.PART_OF_LABEL: names.PROJECT,
        names.TASK_LABEL: pod.task,
        names.OWNER_LABEL: pod.owner,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": pod.namespace, "labels": labels},
        "spec": {**spec, **placement, "securityContext": security},
    }


def name_for(pod: TaskPod) -> str:
    """A name that no other pod has."""
    return f"disttrain-{pod.task}-{names.short(pod.owner)}-{uuid.uuid4().hex[:5]}"


@contextmanager
def running(
    api: Api,
    pod: TaskPod,
    quiet: bool = False,
    start_seconds: float = START_SECONDS,
    name: str = "",
) -> Iterator[str]:
    """Start the pod and yield its path when it runs or has ended; delete it whatever happens.

    Args:
        api: the cluster.
        pod: what it is made of.
        quiet: say nothing where it could not be removed.
        start_seconds: how long it may take to start.
        name: what `name_for` has given, if somebody else has to know it; empty: a new one.

    Raises:
        TaskError: it does not start; with its own words.
    """
    name = name or name_for(pod)
    collection = PODS.format(pod.namespace)
    path = f"{collection}/{name}"
    try:
        try:
            api.create(collection, pod_manifest(pod, name))
        except ApiError as error:
            if error.status != 409:  # made by a request whose answer was lost
                raise
        patience = Patience(STUCK_SECONDS, time.monotonic)
        ask = partial(_not_started, api, path, patience)
        wait_for(f"pod {name} to start", ask, start_seconds)
        yield path
    finally:
        try:
            api.delete(path, {"gracePeriodSeconds": 1})
        except (ApiError, UnreachableError) as reason:
            if not quiet:
                # Not among what a command prints, which may be JSON.
                say(
                    f"pod {name} could not be removed ({reason}). It ends by itself "
                    f"{pod.deadline_seconds} s after its start, and pulumi destroy removes it",
                    sys.stderr,
                )


def _not_started(api: Api, path: str, patience: Patience) -> str:
    item = api.get(path)
    if item is None:
        raise TaskError("the pod was deleted by somebody before it ran")
    phase = part(item, "status").get("phase")
    if phase in ("Running", "Succeeded", "Failed"):
        return ""
    report = report_pod(item)
    if patience.is_over(report.stuck):
        raise TaskError(report.stuck)
    return report.state
