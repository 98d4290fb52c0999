"""Deletes disttrain's pods on machines that do not answer, so that new pods can replace them.

Kubernetes does not replace a pod before it has ended, and a machine that is off never reports that
(https://github.com/kubernetes/kubernetes/issues/55713). This program marks the pods on such a
machine as failed, and deletes them. It does so for disttrain's pods in its own namespace, including
an older pod of this program, and for no others. That is safe for a training: a deleted pod may
still run behind a broken network, but it completes no checkpoint, because its run has a new owner
by then (trainer/checkpoint/run_lock.py).

The pod of the setting `lostNodes` runs this program. The file goes into the pod unchanged, so it
imports only the standard library and files of this folder.
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

PATIENCE_SECONDS = 10.0  # after Kubernetes has noticed the silence, which takes 40 to 50 s
PAUSE_SECONDS = 5.0


@dataclass(frozen=True)
class Pod:
    """A pod of disttrain that has not ended."""

    name: str
    uid: str
    node: str


def living(pods: Sequence[Json]) -> list[Pod]:
    """The pods that were assigned to a machine and have not ended."""
    return [
        Pod(pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"]["nodeName"])
        for pod in pods
        if pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") not in ENDED
    ]


def is_silent(node: Json) -> bool:
    """Whether Kubernetes no longer hears from the machine's kubelet.

    If a kubelet itself reports that its machine is not ready, it can still end pods. So its pods
    are left alone.
    """
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "Unknown" for c in conditions)


def given_up(pod: Pod, now: str) -> Json:
    """The patch that marks a pod as failed, as Kubernetes does when it knows that a machine is off.

    The Jobs of the trainings do not count a pod with the condition `DisruptionTarget` as a failure.
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
    """Delete the pods on machines that have been silent for PATIENCE_SECONDS.

    Raises:
        OSError: The API server does not answer, or refuses a request.
    """
    pods = f"namespaces/{api.namespace}/pods"
    # With resourceVersion=0 the API server answers from its cache. This is cheap, and the answer
    # may be some seconds old.
    found = living(api.ask("GET", f"{pods}?labelSelector={OURS}&resourceVersion=0")["items"])
    silent = [name for name in sorted({pod.node for pod in found}) if _is_silent(api, name)]
    lost = silence.lasting(silent, time.monotonic())
    for pod in (pod for pod in found if pod.node in lost):
        _give_up(api, f"{pods}/{pod.name}", pod)


def _is_silent(api: Api, name: str) -> bool:
    found: list[Json] = []
    # If the Node object is gone, Kubernetes removes the pods itself.
    is_there = unless((404,), lambda: found.append(api.ask("GET", f"nodes/{name}")))
    return is_there and is_silent(found[0])


def _give_up(api: Api, path: str, pod: Pod) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def end() -> None:
        change = given_up(pod, now)
        api.ask("PATCH", f"{path}/status", change, "strategic-merge-patch+json")
        now_and_this_one = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        api.ask("DELETE", path, now_and_this_one)

    if unless((404, 409), end):  # otherwise it is gone, or a new pod has its name
        say(f"{pod.node} does not answer: gave up pod {pod.name}, so that another one can start")


def main() -> NoReturn:
    """Check the machines every PAUSE_SECONDS, forever."""
    api, silence, trouble = api_of_the_pod(), Lasting(PATIENCE_SECONDS), Trouble()
    say(f"watching the machines of the pods in namespace {api.namespace}")
    while True:
        with trouble.said():
            look(api, silence)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
