"""Gives up our pods on machines that do not answer, so that others can take their place.

Kubernetes waits with a pod's replacement until the pod has ended, and a machine that is off never
says so (https://github.com/kubernetes/kubernetes/issues/55713). This program says it for
disttrain's pods in its namespace, its own predecessor among them, and for no others. That is safe
for a training: a pod that is given up, but still runs behind a broken network, puts no checkpoint
in place, because its run has another owner by then (trainer/checkpoint/run_lock.py).

It is the pod of the setting `lostNodes`. The file goes into that pod as it is, so it imports the
standard library and files of this folder alone.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from infra.in_cluster.api import (
    ENDED,
    OURS,
    Api,
    Json,
    Trouble,
    api_of_the_pod,
    say,
    unless,
)
from infra.in_cluster.lasting import Lasting

PATIENCE_SECONDS = 10.0  # after Kubernetes has missed the machine, which takes 40 to 50 s
PAUSE_SECONDS = 5.0


@dataclass(frozen=True)
class Pod:
    """A pod of ours that has not ended."""

    name: str
    uid: str
    node: str


def living(pods: Sequence[Json]) -> list[Pod]:
    """The pods that have a machine and have not ended."""
    return [
        Pod(pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"]["nodeName"])
        for pod in pods
        if pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") not in ENDED
    ]


def is_silent(node: Json) -> bool:
    """Whether Kubernetes has missed the machine's kubelet.

    A kubelet that says itself that its machine is not ready still ends pods, and is left alone.
    """
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "Unknown" for c in conditions)


def given_up(pod: Pod, now: str) -> Json:
    """The change that ends a pod as Kubernetes itself does once it knows that a machine is off.

    `DisruptionTarget` is a condition that the Jobs of the trainings do not count as a failure.
    """
    return {
        "metadata": {"uid": pod.uid},
        "status": {
            "phase": "Failed",
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "NodeDoesNotAnswer",
                    "message": f"disttrain gave the pod up, because {pod.node} does not answer",
                    "lastTransitionTime": now,
                }
            ],
        },
    }


def look(api: Api, silence: Lasting) -> None:
    """Give up the pods on machines that are lost by now.

    Raises:
        OSError: the API server could not be asked.
    """
    pods = f"namespaces/{api.namespace}/pods"
    # From the server's memory, which costs it little; it may be some seconds old.
    found = living(api.ask("GET", f"{pods}?labelSelector={OURS}&resourceVersion=0")["items"])
    silent = [name for name in sorted({pod.node for pod in found}) if _is_silent(api, name)]
    lost = silence.lasting(silent, time.monotonic())
    for pod in (pod for pod in found if pod.node in lost):
        _give_up(api, f"{pods}/{pod.name}", pod)


def _is_silent(api: Api, name: str) -> bool:
    found: list[Json] = []
    # Without its Node object Kubernetes removes the pods itself.
    is_there = unless((404,), lambda: found.append(api.ask("GET", f"nodes/{name}")))
    return is_there and is_silent(found[0])


def _give_up(api: Api, path: str, pod: Pod) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def end() -> None:
        change = given_up(pod, now)
        api.ask("PATCH", f"{path}/status", change, "strategic-merge-patch+json")
        now_and_this_one = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        api.ask("DELETE", path, now_and_this_one)

    if unless((404, 409), end):  # it is gone, or another pod has its name
        say(f"{pod.node} does not answer: gave up pod {pod.name}, so that another one can start")


def main() -> NoReturn:
    """Look again and again."""
    api, silence, trouble = api_of_the_pod(), Lasting(PATIENCE_SECONDS), Trouble()
    say(f"watching the machines of the pods in namespace {api.namespace}")
    while True:
        with trouble.said():
            look(api, silence)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
