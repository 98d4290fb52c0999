"""Task `leftovers`: removes pods that a command started and could not end itself."""

from infra.kube import names
from infra.kube.api import Api
from infra.kube.job import Job
from infra.kube.making_place import PODS
from infra.kube.objects import names_of
from infra.kube.pods import describe_pods
from infra.kube.say import say
from infra.kube.waiting import wait_for

LIMIT_SECONDS = 120


def create(job: Job, api: Api) -> None:
    """Nothing: pods of commands come later."""


def delete(job: Job, api: Api) -> None:
    """Delete them and wait until they have gone, so that the claim can go."""
    selector = names.TASK_LABEL
    if not job.fields.get("everyone"):
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
