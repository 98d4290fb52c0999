"""Finds out how a run ended whose workload Kubernetes has removed (`ttlSecondsAfterFinished`).

The pods and their logs were removed with the workload. Only the logs of the nodes on the volume
still say how the run ended. A short-lived pod reads them once (gone_program.py). The answer is
noted in the run's record, so that nobody has to read them again.
"""

import json
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError
from infra.kube.files.task_pod import TaskPod, running
from infra.kube.objects import part
from infra.kube.paths import log_path
from infra.kube.record import FAILED, FINISHED, GOES_LATER, Record, record_path
from infra.kube.runs import gone_program
from infra.kube.runs.gone_pod import Asker, pod_fields
from infra.kube.say import shorten
from infra.kube.waiting import wait_for

TASK = "how-ended"
READ_SECONDS = 60
START_SECONDS = 60
APART_SECONDS = 30.0  # by so much the clocks of a node and of the API server may differ
MOST_CHARACTERS = 300
NO_STACK = "a pod would have to read the volume, and only a stack says with which image (--stack)"
AGAIN = "`pulumi refresh` and then `pulumi up` make it again"


class NoPodError(TaskError):
    """No pod starts on the volume, for example because only a lost node can mount it."""


def how_ended(api: Api, record: Record, own: Asker | None) -> str:
    """How the run ended, from its record or else from the volume.

    Args:
        api: the cluster.
        record: the record of a run whose workload is not there.
        own: what the stack that asks gives to the pod on the volume; None: no stack asks, and no
            pod is started.

    Returns:
        `finished: ...` or `failed: ...`; empty: nothing on the volume says that the run has ended.

    Raises:
        NoPodError: no pod starts on the volume.
        TaskError: the volume cannot be read, or it is not that of the stack that asks.
        ApiError: these credentials may not start a pod.
        UnreachableError: the API server does not answer.
    """
    if record.how_ended or record.ttl is None:
        return record.how_ended
    if own is None:
        raise TaskError(NO_STACK)
    if own.claim != record.ttl.claim:
        raise TaskError(
            f"its record names the claim {record.ttl.claim}, and the platform of the stack that "
            f"asks has {own.claim}"
        )
    found = answer_of(_on_volume(api, record, own), record.since)
    if found:
        annotations = {names.HOW_ENDED_ANNOTATION: found}
        path = record_path(record.namespace, record.owner)
        try:
            api.patch(path, {"metadata": {"annotations": annotations}})
        except ApiError as error:
            if error.status != 403:  # without this right, the next caller reads the volume again
                raise
    return found


def forget_end(api: Api, record: Record) -> None:
    """Remove from the record how the run ended, because there is a workload of the run again."""
    path = record_path(record.namespace, record.owner)
    api.patch(path, {"metadata": {"annotations": {names.HOW_ENDED_ANNOTATION: None}}})


def how_ended_or_empty(api: Api, record: Record, own: Asker | None) -> str:
    """The answer of `how_ended`, but an empty text if the volume cannot be read.

    Raises:
        UnreachableError: the API server does not answer.
    """
    try:
        return how_ended(api, record, own)
    except (ApiError, TaskError):
        return ""


def gone_words(record: Record, not_read: str = "") -> str:
    """The message about a workload that is not there. This function is pure.

    Args:
        record: the record of its run, with `how_ended` as far as it is known.
        not_read: why the volume could not be read for the end of the run; empty: it was read.
    """
    if record.ttl is None:
        return f"{record.workload} is not there: somebody has deleted it. {AGAIN}"
    seconds = f"{record.ttl.seconds} s"
    from_there = "" if record.had_finished else " from its last checkpoint"
    if record.how_ended:
        how = record.how_ended.partition(": ")[2]
        words = f"{how}; " if how else ""
        return (
            f"{words}{record.workload} was removed {seconds} after that ({GOES_LATER}). "
            f"{AGAIN}{from_there}"
        )
    if not_read:
        return (
            f"{record.workload} is not there: it was removed {seconds} after the end of its run "
            f"({GOES_LATER}), or somebody has deleted it. How the run ended was not seen: "
            f"{not_read}"
        )
    return (
        f"{record.workload} is not there, and no log of the run says that it had ended: somebody "
        f"has deleted the workload, or the run failed without a word and the workload was removed "
        f"{seconds} later ({GOES_LATER}). {AGAIN}{from_there}"
    )


def answer_of(found: dict[str, Any], since: datetime) -> str:
    """How the run ended, as `how_ended` returns it. This function is pure.

    Args:
        found: the JSON that gone_program.py has printed.
        since: when the hand-over of the run's `up` ended. An end before that time belongs to an
            earlier workload of the run, which may have had fewer steps.
    """
    at = str(found.get("at") or "")
    if at and (since - datetime.fromisoformat(at)).total_seconds() > APART_SECONDS:
        return ""
    state, words = str(found.get("state") or ""), shorten(str(found.get("words")), MOST_CHARACTERS)
    return {"finished": f"{FINISHED}{words}", "failed": f"{FAILED}{words}"}.get(state, "")


def _on_volume(api: Api, record: Record, own: Asker) -> dict[str, Any]:
    """Read the end with an image and a claim that nobody could choose by changing the record."""
    assert record.ttl is not None
    program = Path(gone_program.__file__).read_text()
    pod = TaskPod(
        task=TASK,
        owner=record.owner,
        namespace=record.namespace,
        image=own.image,
        command=("python3", "-c", program, record.ttl.run_dir),
        claim=own.claim,
        deadline_seconds=READ_SECONDS,
        read_only=True,
        placement=pod_fields(record.ttl.placement, own.placement),
    )
    with ExitStack() as stack:
        try:
            path = stack.enter_context(running(api, pod, quiet=True, start_seconds=START_SECONDS))
        except TaskError as reason:
            raise NoPodError(str(reason)) from None

        def ask() -> str:
            phase = part(api.get(path) or {}, "status").get("phase")
            if phase == "Failed":
                said = shorten(api.text(log_path(path), {"tailLines": "3"}).strip())
                raise TaskError(f"the volume cannot be read for how the run ended: {said}")
            return "" if phase == "Succeeded" else "it reads the run's log"

        wait_for(f"pod {path.rpartition('/')[2]} to read how the run ended", ask, READ_SECONDS)
        text = api.text(log_path(path), {})
    try:
        return cast(dict[str, Any], json.loads(text))
    except ValueError:  # the node has lost the pod's log, for example because its disk is full
        said = shorten(text) or "no line"
        raise TaskError(f"the pod that reads how the run ended has printed {said}") from None
