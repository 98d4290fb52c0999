"""Reads from the API server's answers what a run does, without any code of `status`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

from infra.kube.objects import Json, part, parts
from infra.kube.runs.busy import COMING_UP_SECONDS
from infra.workloads.kind import WorkloadKind
from tests.cli.status.tape import Asked

STEP, LOST, FINISHED = "step ", "training stopped: ", "is finished: "
WAITS = "training waits for checkpoint step-"
SAVES = (WAITS, "checkpoint step-")
NO_IMAGE = ("ErrImagePull", "ErrImageNeverPull", "ImagePullBackOff")


@dataclass(frozen=True)
class Shown:
    """The API server's answers to the requests of one observation of a run."""

    asked: Sequence[Asked]

    @property
    def pods(self) -> list[Json]:
        """The pods of the run."""
        (answer,) = (each for each in self.asked if "/pods?labelSelector=" in each.question)
        return parts(answer.body, "items")

    @property
    def logs(self) -> list[list[str]]:
        """The log lines of each pod, without their times."""
        texts = [each.text for each in self.asked if "/log?" in each.question]
        return [[line.partition(" ")[2] for line in text.splitlines()] for text in texts]

    @property
    def phases(self) -> list[str]:
        """The phases of the pods."""
        return [str(part(pod, "status").get("phase")) for pod in self.pods]

    def has(self, begin: str) -> bool:
        """Whether a log line of some pod contains this text."""
        return any(begin in line for lines in self.logs for line in lines)


def waits_for_node(shown: Shown) -> bool:
    """Whether no pod has a node, because the node accepts no pods."""
    return all(phase == "Pending" for phase in shown.phases) and not any(
        part(pod, "spec").get("nodeName") for pod in shown.pods
    )


def lacks_image(shown: Shown) -> bool:
    """Whether the kubelet says that a pod's image cannot be had."""
    states = [
        part(status, "state", "waiting").get("reason")
        for pod in shown.pods
        for status in parts(part(pod, "status"), "containerStatuses")
    ]
    return any(state in NO_IMAGE for state in states)


def starts(pods: int, shown: Shown) -> bool:
    """Whether all pods run, the launcher has written something, and no rank has made a step."""
    run = shown.phases.count("Running") == pods == len(shown.phases)
    return run and any(shown.logs) and not shown.has(STEP) and not shown.has(LOST)


def trains(shown: Shown) -> bool:
    """Whether the last line of some pod is about a step, after several other steps."""
    return any(
        lines and lines[-1].startswith(STEP) and sum(line.startswith(STEP) for line in lines) > 3
        for lines in shown.logs
    )


def recovers(shown: Shown) -> bool:
    """Whether some pod says why its ranks were ended, and has reported no step since."""
    for lines in shown.logs:
        steps = [place for place, line in enumerate(lines) if line.startswith(STEP)]
        lost = [place for place, line in enumerate(lines) if LOST in line]
        if steps and lost and lost[-1] > steps[-1]:
            return True
    return False


def waits_for_save(shown: Shown) -> bool:
    """Whether the last line of some pod says that training waits for a save."""
    return any(lines and lines[-1].startswith(WAITS) for lines in shown.logs)


def saves_before_it_ends(shown: Shown) -> bool:
    """Whether all pods run, some are being deleted, and the newest save has not ended.

    The workers of a LeaderWorkerSet are deleted only when their leader has ended.
    """
    told = [part(pod, "metadata").get("deletionTimestamp") for pod in shown.pods]
    saves = [line for lines in shown.logs for line in lines if any(w in line for w in SAVES)]
    is_saving = bool(saves) and " saved in " not in saves[-1]
    return any(told) and set(shown.phases) == {"Running"} and is_saving


def has_no_live_pod(shown: Shown) -> bool:
    """Whether the run's pods are gone or have ended."""
    return not {"Running", "Pending"} & set(shown.phases)


def is_long_over(shown: Shown) -> bool:
    """Whether no pod lives, and the run's `pulumi up` must have ended by now."""
    (record,) = parts(shown.asked[0].body, "items")
    since = datetime.fromisoformat(part(record, "data")["since"])
    now = parsedate_to_datetime(shown.asked[-1].date)
    return has_no_live_pod(shown) and (now - since).total_seconds() > COMING_UP_SECONDS


def has_finished(shown: Shown) -> bool:
    """Whether no pod lives, or the launcher says that the run is finished.

    The pods of a StatefulSet stay after the end.
    """
    return has_no_live_pod(shown) or shown.has(FINISHED)


def has_failed(kind: WorkloadKind, shown: Shown) -> bool:
    """Whether the controller says by a condition or a phase that the workload has failed."""
    answers = [each.body for each in shown.asked if each.question.endswith(kind.object_name)]
    status = part(answers[0], "status") if answers else {}
    true = [each.get("type") for each in parts(status, "conditions") if each["status"] == "True"]
    return bool({*true, part(status, "state").get("phase")} & {*kind.failed})


def anything(shown: Shown) -> bool:
    """Whether there is any answer; for states that follow from what the test did."""
    return bool(shown.asked)
