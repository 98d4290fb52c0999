"""Asks the cluster in the Pulumi program about the stack's run, as the last `up` has left it.

The program asks before any task runs, in each preview and each update.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import pulumi

from infra.kube.api_server.copies import remove_copies
from infra.kube.job import parse_job
from infra.kube.runs.hand_over_request import hand_over_request
from infra.kube.runs.queue_place_now import queue_place_now
from infra.kube_command import Connection


@dataclass(frozen=True)
class PresentRun:
    """What the cluster says about the run. A text is empty if the cluster could not be asked.

    Args:
        hand_over_request: a text that changes when the hand-over has to run again, for example
            because another run has replaced this one (infra/kube/runs/hand_over_request.py).
        queue_place: a sentence about the run's place in its queue; also empty if the run is in no
            queue (infra/kube/runs/queue_place_now.py).
    """

    hand_over_request: str = ""
    queue_place: str = ""


def ask_about_present_run(connection: Connection, revision: str) -> pulumi.Output[PresentRun]:
    """Ask about the run.

    Args:
        connection: how the cluster is reached.
        revision: the revision of the run with the present settings.
    """
    if connection.is_gone:
        return pulumi.Output.from_input(PresentRun())
    job = pulumi.Output.json_dumps(connection.job)
    return pulumi.Output.unsecret(job).apply(lambda text: asyncio.to_thread(_ask, text, revision))


def _ask(text: str, revision: str) -> PresentRun:
    job = parse_job(text)
    with suppress(ValueError):  # no kubeconfig; the first program that needs one reports it
        remove_copies(job.access)  # the copies of the kubeconfig that former commands have left
    request = hand_over_request(job.access, job.namespace, job.owner)
    if not request:  # A cluster that has not answered is not asked again, to save some seconds.
        return PresentRun()
    place = queue_place_now(job.access, job.namespace, job.owner, revision)
    return PresentRun(request, place)
