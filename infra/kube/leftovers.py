"""Task `leftovers`: removes pods that would keep the claim from being deleted.

Pods of commands such as `./disttrain sample` are deleted. The pods of the training have been asked
to end when this task runs, and are waited for.
"""

import time

from infra.kube import names
from infra.kube.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.making_place import PODS
from infra.kube.objects import Json, names_of
from infra.kube.pods import describe_pods
from infra.kube.say import say
from infra.kube.silent_machines import (
    describe,
    pods_and_machines,
    silent_machines,
    stranded,
)
from infra.kube.waiting import SETTLED_SECONDS, Patience, wait_for

LIMIT_SECONDS = 120
# Beyond the time that pods have to save: until lostNodes has given up those of a lost machine.
LOST_SECONDS = 180


def create(job: Job, api: Api) -> None:
    """Nothing: pods of commands come later."""


def delete(job: Job, api: Api) -> None:
    """Remove the pods of commands; where the claim goes, wait for those of the training to end.

    Raises:
        TaskError: they are still there after their time, or their machine does not answer.
    """
    everyone = bool(job.fields.get("everyone"))
    _remove_pods_of_commands(job, api, everyone)
    if everyone:
        _await_training_pods(job, api, bool(job.fields.get("lost_nodes_are_replaced")))


def _remove_pods_of_commands(job: Job, api: Api, everyone: bool) -> None:
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

    def ask() -> str:
        left = api.list(collection, selector)
        return describe_pods(left) if left else ""

    wait_for("them to be gone", ask, LIMIT_SECONDS)


def _await_training_pods(job: Job, api: Api, are_replaced: bool) -> None:
    """Wait for the stack's training pods.

    Args:
        job: whose pods they are.
        api: the cluster.
        are_replaced: `lostNodes` gives up the pods of a machine that does not answer.
    """
    collection, selector = PODS.format(job.namespace), names.training_selector(job.owner)
    borne = Patience(SETTLED_SECONDS, time.monotonic)

    def ask() -> str:
        pods = api.list(collection, selector)
        silent = silent_machines(api, pods)
        if borne.is_over("" if are_replaced else describe(silent)):
            raise TaskError(
                f"the volume's claim cannot be deleted while pods use it. {stranded(pods, silent)}"
            )
        return pods_and_machines(pods, silent)

    pods = api.list(collection, selector)
    limit = max((_grace_seconds(pod) for pod in pods), default=0) + LOST_SECONDS
    wait_for("the pods of the training to save and end", ask, limit)


def _grace_seconds(pod: Json) -> int:
    return int(pod["spec"].get("terminationGracePeriodSeconds") or 30)
