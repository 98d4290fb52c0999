"""Task `leftovers`: ends the pods that would keep the claim from being deleted.

The pods of commands such as `./disttrain sample` are deleted. The pods of the training are already
ending when this task runs, so the task waits for them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import object_at
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, is_ending, label, names_of
from infra.kube.paths import PODS
from infra.kube.pods.silent_machines import describe, pods_and_machines, silent_machines, stranded
from infra.kube.say import say
from infra.kube.waiting import SETTLED_SECONDS, Patience, wait_for
from infra.names import LOST_NODES_PROGRAM

LIMIT_SECONDS = 120
# How long lostNodes may take to give up the pods of a lost machine after their grace period.
LOST_SECONDS = 180
TRAININGS = f"{names.COMPONENT_LABEL}={names.TRAINING},{names.OWNER_LABEL}"


def delete(job: Job, api: Api) -> None:
    """Delete the pods of commands, and wait until the pods of the training have ended.

    Raises:
        TaskError: pods are still there after their grace period, or their machine does not answer.
    """
    everyone = bool(job.fields.get("everyone"))
    end = _EndOfPods(
        api,
        "the volume's claim cannot be deleted while pods use it. " if everyone else "",
        LOST_SECONDS if _are_given_up(job, api) else SETTLED_SECONDS,
    )
    _remove_pods_of_commands(job, api, end, everyone=everyone)
    _await_training_pods(job, api, end, everyone=everyone)


def _are_given_up(job: Job, api: Api) -> bool:
    """Whether the platform's `lostNodes` may give up the pods of a machine that does not answer.

    The stack of a platform knows its setting. A stack of a run on another stack's platform finds
    out whether the program is there.
    """
    if job.fields.get("everyone"):
        return bool(job.fields.get("lost_nodes_are_replaced"))
    path = f"/apis/apps/v1/namespaces/{job.namespace}/deployments/{LOST_NODES_PROGRAM}"
    return object_at(api, path) is not None


@dataclass(frozen=True)
class _EndOfPods:
    """Waits for the end of pods, and names the machines on which pods cannot end.

    Args:
        api: the cluster.
        why: a sentence that an error begins with, before the reason why pods cannot end; it ends
            with a space. It may be empty.
        patience_seconds: how long the wait goes on while a machine does not answer.
    """

    api: Api
    why: str
    patience_seconds: float

    def wait(self, what: str, pods_there: Callable[[], list[Json]], limit_seconds: float) -> None:
        """Wait until there are no more pods.

        Args:
            what: what is waited for, for the messages.
            pods_there: returns the pods that still exist.
            limit_seconds: the longest wait. `patience_seconds` are added to it.

        Raises:
            TaskError: the limit is reached, or a machine does not answer for too long.
        """
        borne = Patience(self.patience_seconds, time.monotonic)

        def ask() -> str:
            pods = pods_there()
            silent = silent_machines(self.api, pods)
            if borne.is_over(describe(silent)):
                raise TaskError(f"{self.why}{stranded(pods, silent)}")
            return pods_and_machines(pods, silent)

        wait_for(what, ask, limit_seconds + self.patience_seconds)


def _remove_pods_of_commands(job: Job, api: Api, end: _EndOfPods, *, everyone: bool) -> None:
    selector = names.TASK_LABEL
    if not everyone:
        selector += f",{names.OWNER_LABEL}={job.owner}"
    collection = PODS.format(job.namespace)
    pods = api.list(collection, selector)
    if not pods:
        return
    say(f"pods that commands have left are removed: {names_of(pods)}")
    for pod in pods:
        api.delete(f"{collection}/{pod['metadata']['name']}", {"gracePeriodSeconds": 5})
    end.wait("them to be gone", lambda: api.list(collection, selector), LIMIT_SECONDS)


def _await_training_pods(job: Job, api: Api, end: _EndOfPods, *, everyone: bool) -> None:
    """Wait for the training pods of this stack.

    If the claim is deleted (`everyone`), this also waits for pods of other stacks' runs that are
    being deleted. Such a run was destroyed and has no record any more, but its pods may still be on
    a lost machine.
    """
    collection = PODS.format(job.namespace)

    def pods_there() -> list[Json]:
        ours = api.list(collection, names.training_selector(job.owner))
        others = api.list(collection, TRAININGS) if everyone else []
        left = [pod for pod in others if label(pod, names.OWNER_LABEL) != job.owner]
        return [*ours, *filter(is_ending, left)]

    grace = max(map(_grace_seconds, pods_there()), default=0)
    end.wait("the pods of the training to save and end", pods_there, grace + LIMIT_SECONDS)


def _grace_seconds(pod: Json) -> int:
    return int(pod["spec"].get("terminationGracePeriodSeconds") or 30)
