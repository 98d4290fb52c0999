"""How a run ended whose workload has gone, because its `ttlSecondsAfterFinished` is over.

Its pods and their lines went with it, so only the volume knows: node 0's log says the end. A pod
reads it once, and the answer is noted in the run's record for whoever looks later.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError
from infra.kube.files.task_pod import TaskPod, running
from infra.kube.objects import Json, part
from infra.kube.paths import log_path
from infra.kube.record import FAILED, FINISHED, GOES_LATER, Record, record_path
from infra.kube.runs import gone_program
from infra.kube.say import shorten
from infra.kube.waiting import wait_for

TASK = "how-ended"
READ_SECONDS = 60
START_SECONDS = 60
APART_SECONDS = 30.0  # the clocks of a node and of the API server may differ
MOST_CHARACTERS = 300
PLACEMENT_KEYS = ("nodeSelector", "tolerations", "priorityClassName", "imagePullSecrets")
GROUP_KEYS = ("fsGroup", "fsGroupChangePolicy")
LIMIT_KEYS = ("cpu", "memory")
AGAIN = "`pulumi refresh` and then `pulumi up` make it again"


def how_ended(api: Api, record: Record) -> str:
    """`finished: ...`, `failed: ...`, or empty: nothing on the volume says that it has ended.

    Args:
        api: the cluster.
        record: of a run whose workload is not there.

    Raises:
        TaskError: the volume cannot be read.
        ApiError: these credentials may not start a pod.
        UnreachableError: nobody answers.
    """
    if record.how_ended or record.ttl is None:
        return record.how_ended
    found = answer_of(_on_volume(api, record), record.since)
    if found:
        annotations = {names.HOW_ENDED_ANNOTATION: found}
        path = record_path(record.namespace, record.owner)
        try:
            api.patch(path, {"metadata": {"annotations": annotations}})
        except ApiError as error:
            if error.status != 403:  # then the next look has to read the volume again
                raise
    return found


def forget_end(api: Api, record: Record) -> None:
    """There is a workload again, which has not ended yet."""
    path = record_path(record.namespace, record.owner)
    api.patch(path, {"metadata": {"annotations": {names.HOW_ENDED_ANNOTATION: None}}})


def how_ended_or_empty(api: Api, record: Record) -> str:
    """What `how_ended` says, but empty where the volume cannot be read, instead of an error.

    Raises:
        UnreachableError: nobody answers.
    """
    try:
        return how_ended(api, record)
    except (ApiError, TaskError):
        return ""


def gone_words(record: Record, not_read: str = "") -> str:
    """What is said of a workload that is not there. Pure.

    Args:
        record: of its run, with `how_ended` as far as it is known.
        not_read: why the volume was not asked how the run ended; empty: it was asked.
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
    """From what the program in the pod has printed. Pure.

    Args:
        found: what it has printed.
        since: when the `up` of the run took its place. An end before it is that of a workload
            before this one, which may have had fewer steps.
    """
    at = str(found.get("at") or "")
    if at and (since - datetime.fromisoformat(at)).total_seconds() > APART_SECONDS:
        return ""
    state, words = str(found.get("state") or ""), shorten(str(found.get("words")), MOST_CHARACTERS)
    return {"finished": f"{FINISHED}{words}", "failed": f"{FAILED}{words}"}.get(state, "")


def harmless(placement: Json) -> Json:
    """The fields of a pod's spec that may come from a record. Pure.

    Whoever may change a ConfigMap must not choose the rights of a pod that others start.
    """
    found = {key: placement[key] for key in PLACEMENT_KEYS if key in placement}
    given = part(placement, "securityContext")
    groups = {key: given[key] for key in GROUP_KEYS if key in given}
    asked = part(placement, "resources", "limits")
    limits = {key: asked[key] for key in LIMIT_KEYS if key in asked}
    return {
        **found,
        **({"securityContext": groups} if groups else {}),
        **({"resources": {"limits": limits}} if limits else {}),
    }


def _on_volume(api: Api, record: Record) -> dict[str, Any]:
    assert record.ttl is not None
    program = Path(gone_program.__file__).read_text()
    pod = TaskPod(
        task=TASK,
        owner=record.owner,
        namespace=record.namespace,
        image=record.ttl.image,
        command=("python3", "-c", program, record.ttl.run_dir),
        claim=record.ttl.claim,
        deadline_seconds=READ_SECONDS,
        read_only=True,
        placement=harmless(record.ttl.placement),
    )
    with running(api, pod, quiet=True, start_seconds=START_SECONDS) as path:

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
    except ValueError:  # the node has lost the pod's log, such as a full disk
        said = shorten(text) or "no line"
        raise TaskError(f"the pod that reads how the run ended has printed {said}") from None
