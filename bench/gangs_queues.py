"""The two queues in which `bench.gangs` makes gangs: one of Kueue and one of Volcano."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.gangs_rows import PODS
from infra.names import QUEUE_LABEL
from infra.objects import Manifest
from tests.e2e.lab import NAMESPACE

LABEL = "bench/gang"  # its value is the name of the pod's gang
QUEUE = "gpus"
WORK_SECONDS = 2
POD_CPU_MILLIS = 100


@dataclass(frozen=True)
class Queue:
    """A queue with room for one gang.

    Args:
        title: the name, for the table, of the controllers that are killed.
        controllers: names of the sandbox's controllers, in the order in which they are started.
        settings: the settings of the platform's stack for this queue.
        objects: the objects that make the queue, if the platform does not make it.
        resource: kubectl's name for the kind of object that is a gang.
        gang: a function that gives the gang of a name whose pods run an image.
        is_over: a function that tells whether such an object says that all of its pods have
            completed.
    """

    title: str
    controllers: Sequence[str]
    settings: Mapping[str, str]
    objects: Sequence[Manifest]
    resource: str
    gang: Callable[[str, str], Manifest]
    is_over: Callable[[Mapping[str, Any]], bool]


def _pod(name: str, image: str) -> Manifest:
    """The template of a pod that works for a moment and ends."""
    container = {
        "name": "work",
        "image": image,
        "command": ["sleep", str(WORK_SECONDS)],
        "resources": {"requests": {"cpu": f"{POD_CPU_MILLIS}m"}},
    }
    return {
        "metadata": {"labels": {LABEL: name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }


def _jobset(name: str, image: str) -> Manifest:
    job = {"parallelism": PODS, "completions": PODS, "template": _pod(name, image)}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {QUEUE_LABEL: QUEUE}},
        "spec": {"replicatedJobs": [{"name": "nodes", "template": {"spec": job}}]},
    }


def _volcano_job(name: str, image: str) -> Manifest:
    task = {"name": "nodes", "replicas": PODS, "template": _pod(name, image)}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": "volcano",
            "queue": QUEUE,
            "minAvailable": PODS,
            "maxRetry": 3,
            "tasks": [{**task, "minAvailable": PODS, "maxRetry": 3}],
        },
    }


_VOLCANO_QUEUE: Manifest = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": QUEUE},
    "spec": {"weight": 1, "capability": {"cpu": f"{PODS * POD_CPU_MILLIS}m"}},
}

QUEUES = {
    "kueue": Queue(
        title="Kueue's and JobSet's controllers",
        controllers=("jobset", "kueue"),
        settings={"queues.name": QUEUE, "queues.quota.cpu": f"{PODS * POD_CPU_MILLIS}m"},
        objects=(),
        resource="jobsets.jobset.x-k8s.io",
        gang=_jobset,
        is_over=lambda item: item.get("status", {}).get("terminalState") == "Completed",
    ),
    "volcano": Queue(
        title="Volcano's controllers and scheduler",
        controllers=("volcano",),
        settings={},
        objects=(_VOLCANO_QUEUE,),
        resource="jobs.batch.volcano.sh",
        gang=_volcano_job,
        is_over=lambda item: (item.get("status", {}).get("state", {}).get("phase") == "Completed"),
    ),
}
