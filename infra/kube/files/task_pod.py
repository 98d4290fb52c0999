"""Runs a short-lived pod that mounts the claim, and deletes it when the command ends."""

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
from infra.kube.files.beside_the_disk import beside_the_disk
from infra.kube.objects import Json, part
from infra.kube.paths import PODS
from infra.kube.pods.kubelet_words import words_of_kubelet
from infra.kube.pods.report import report_pod
from infra.kube.say import say
from infra.kube.waiting import STUCK_SECONDS, Patience, wait_for
from infra.names import GPU_RESOURCE, GPU_TOLERATION
from infra.pod_metadata import NO_MESH_ANNOTATIONS, NO_MESH_LABELS, with_own
from infra.unexpanded import unexpanded

DATA_MOUNT = "/data"
START_SECONDS = 600  # an image may have to be pulled first


@dataclass(frozen=True)
class TaskPod:
    """The pod of a task or a command.

    Args:
        task: the name of the task. It is part of the pod's name, and the value of a label.
        owner: the owner id of the stack.
        namespace: the namespace of the pod.
        image: the image of its container.
        command: the program and its arguments.
        claim: the name of the claim that it mounts at DATA_MOUNT; empty: it mounts none.
        deadline_seconds: Kubernetes ends the pod this many seconds after its start.
        uid: the user and the group that it runs as.
        read_only: whether the volume is mounted read-only.
        environment: environment variables of the container.
    """

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
    """Further fields of the pod's spec, such as nodeSelector, tolerations and imagePullSecrets. The
    field `securityContext` is added to that of the pod. The limits in `resources` are for the
    container. The labels and annotations in `metadata` are those of the pod."""
    gpus: int = 0
    """How many whole GPUs the pod asks for."""


def pod_manifest(pod: TaskPod, name: str) -> Json:
    """The manifest of the pod. This function is pure."""
    placement = dict(pod.placement)
    metadata = part({"metadata": placement.pop("metadata", {})}, "metadata")
    limits = part({"resources": placement.pop("resources", {})}, "resources", "limits")
    limits = {**limits, **({GPU_RESOURCE: str(pod.gpus)} if pod.gpus else {})}
    mounts, volumes = _mounted(pod)
    container = {
        "name": pod.task,
        "image": pod.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [unexpanded(word) for word in pod.command],
        "env": [
            {"name": key, "value": unexpanded(value)} for key, value in pod.environment.items()
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {
            "requests": {"cpu": "100m", "memory": "64Mi"},
            **({"limits": limits} if limits else {}),
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
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
        "volumes": volumes,
    }
    security = {**spec["securityContext"], **placement.get("securityContext", {})}
    labels = {
        **with_own(NO_MESH_LABELS, part(metadata, "labels")),
        names.PART_OF_LABEL: names.PROJECT,
        names.TASK_LABEL: pod.task,
        names.OWNER_LABEL: pod.owner,
    }
    metadata: Json = {
        "name": name,
        "namespace": pod.namespace,
        "labels": labels,
        "annotations": with_own(NO_MESH_ANNOTATIONS, part(metadata, "annotations")),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, **placement, "securityContext": security},
    }


def _mounted(pod: TaskPod) -> tuple[list[Json], list[Json]]:
    """The mounts of the container and the volumes of the pod; none of either without a claim."""
    if not pod.claim:
        return [], []
    claim = {"claimName": pod.claim, "readOnly": pod.read_only}
    mount = {"name": "data", "mountPath": DATA_MOUNT, "readOnly": pod.read_only}
    return [mount], [{"name": "data", "persistentVolumeClaim": claim}]


def name_for(pod: TaskPod) -> str:
    """A new, random name for the pod."""
    return f"disttrain-{pod.task}-{names.short(pod.owner)}-{uuid.uuid4().hex[:5]}"


@contextmanager
def running(
    api: Api,
    pod: TaskPod,
    quiet: bool = False,
    start_seconds: float = START_SECONDS,
    name: str = "",
) -> Iterator[str]:
    """Start the pod, yield its path when it runs or has ended, and delete it in any case.

    Args:
        api: the cluster.
        pod: the pod.
        quiet: whether nothing is printed if the pod cannot be deleted.
        start_seconds: how long the pod may take to start.
        name: a name from `name_for`, if the caller has to know it beforehand; empty: a new name.

    Raises:
        TaskError: the pod does not start. The text has the reason that Kubernetes gives.
    """
    name = name or name_for(pod)
    collection = PODS.format(pod.namespace)
    path = f"{collection}/{name}"
    try:
        try:
            manifest = pod_manifest(pod, name)
            api.create(
                collection, beside_the_disk(api, manifest, pod.claim) if pod.claim else manifest
            )
        except ApiError as error:
            if error.status != 409:  # 409: an earlier try of this request has made it
                quiet = True  # There is no pod that could stay.
                raise
        patience = Patience(STUCK_SECONDS, time.monotonic)
        ask = partial(_not_started, api, pod.namespace, path, patience)
        wait_for(f"pod {name} to start", ask, start_seconds)
        yield path
    finally:
        try:
            api.delete(path, {"gracePeriodSeconds": 1})
        except (ApiError, UnreachableError) as reason:
            if not quiet:
                # It goes to stderr, because what a command prints may be JSON.
                say(
                    f"pod {name} could not be removed ({reason}). It ends by itself "
                    f"{pod.deadline_seconds} s after its start, and pulumi destroy removes it",
                    sys.stderr,
                )


def _not_started(api: Api, namespace: str, path: str, patience: Patience) -> str:
    item = api.get(path)
    if item is None:
        raise TaskError("the pod was deleted by somebody before it ran")
    phase = part(item, "status").get("phase")
    if phase in ("Running", "Succeeded", "Failed"):
        return ""
    report = report_pod(item)
    if patience.is_over(report.stuck):
        raise TaskError(report.stuck)
    state = report.state.removeprefix(f"{report.name} ")  # the line about the wait has the name
    words = words_of_kubelet(api, namespace, [item])
    return "; ".join(text for text in (words, state) if text)
