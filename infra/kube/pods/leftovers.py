"""Task `leftovers`: removes pods that would keep the claim from being deleted.

Pods of commands such as `./disttrain sample` are deleted. The pods of the training have been asked
to end when this task runs, and are waited for.
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
# After the end of their time, until lostNodes has given up the pods of a lost machine.
LOST_SECONDS = 180
TRAININGS = f"{names.COMPONENT_LABEL}={names.TRAINING},{names.OWNER_LABEL}"


def create(job: Job, api: Api) -> None:
    """Nothing: pods of commands come later."""


def delete(job: Job, api: Api) -> None:
    """Remove the pods of commands, and wait for those of the training to end.

    Raises:
        TaskError: they are still there after their time, or their machine does not answer.
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
    """Whether `lostNodes` gives up the pods of a machine that does not answer, or may do so.

    The stack of a run alone sees it by the program of its platform.
    """
    if job.fields.get("everyone"):
        return bool(job.fields.get("lost_nodes_are_replaced"))
    path = f"/apis/apps/v1/namespaces/{job.namespace}/deployments/{LOST_NODES_PROGRAM}"
    return object_at(api, path) is not None


@dataclass(frozen=True)
class _EndOfPods:
    """Waits for the end of pods, and names the machines that keep some of them.

    Args:
        api: the cluster.
        why: a sentence before the reason for which a pod cannot end.
        patience_seconds: how long a machine that does not answer is borne.
    """

    api: Api
    why: str
    patience_seconds: float

    def wait(self, what: str, pods_there: Callable[[], list[Json]], limit_seconds: float) -> None:
        """Wait until there are no more pods. Raises TaskError."""
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
    """Wait for the stack's training pods, and where the claim goes for those that other stacks
    have left: a run that was destroyed has no record, and its pods may be on a lost machine."""
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
