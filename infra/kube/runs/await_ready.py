"""Task `await`: waits until all pods of a training are ready, or until its workload has ended.

A pod is ready once all of its ranks have made a step. A run in a queue of Kueue waits for its place
in the queue first.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import Job
from infra.kube.objects import Json
from infra.kube.paths import PODS
from infra.kube.pods.last_lines import last_lines
from infra.kube.pods.report import PodReport, describe_pods, report_pod
from infra.kube.queues.await_queue import (
    QUEUE_SECONDS,
    SuspendedError,
    ends_well,
    held_back,
    seen_stopped,
    stopped_text,
    wait_in_queue,
)
from infra.kube.record import read_record
from infra.kube.runs.controller_words import words_of_controller
from infra.kube.runs.failed_starts import FailedStarts
from infra.kube.runs.gone import AGAIN, forget_end, gone_words, how_ended
from infra.kube.runs.gone_pod import Asker
from infra.kube.runs.volume_line import volume_line
from infra.kube.say import say
from infra.kube.waiting import SETTLED_SECONDS, STUCK_SECONDS, Patience, wait_for
from infra.kube.workload import Workload, true_condition


class GoneError(TaskError):
    """The workload is not there, and its run has not finished."""


@dataclass(frozen=True)
class Verdict:
    """What one observation of the workload and its pods means.

    The first field that is not empty counts.

    Args:
        failure: why the training has failed. It ends the wait at once.
        finished: why the wait is over: the workload has ended well, or all pods are ready.
        enough: the message that fewer pods than wanted are ready, but enough to train. It ends the
            wait once this has lasted for some seconds.
        stuck: a problem that rarely solves itself. It ends the wait once it has lasted for a while.
        state: why the wait goes on, such as `1 of 3 pods are ready; ...`.
    """

    failure: str = ""
    finished: str = ""
    enough: str = ""
    stuck: str = ""
    state: str = ""


def judge(
    workload: Workload,
    uid: str,
    item: Json | None,
    pods: list[Json],
    wanted: int,
    done: list[str],
    failed: list[str],
    least: int | None = None,
    ready_means: str = "all ranks have stepped",
) -> Verdict:
    """Decide what one observation of the workload and its pods means. This function is pure.

    Args:
        workload: the kind and the name of the workload.
        uid: the uid of the workload that this `up` has made; empty: any uid is accepted.
        item: the workload; None: it does not exist.
        pods: the pods of the workload's revision.
        wanted: how many pods must be ready.
        done: the condition types that mean that the workload has finished.
        failed: the condition types that mean that the workload has failed.
        least: the number of ready pods with which the training can go on; None: all `wanted` pods.
        ready_means: what it means for the run that all pods are ready, for the message.
    """
    if item is None:
        return Verdict(failure=f"{workload} is gone: somebody has deleted it")
    if uid and item["metadata"].get("uid") != uid:
        return Verdict(failure=f"{workload} is another one than `pulumi up` made (its uid differs)")
    if condition := true_condition(item, failed):
        return Verdict(failure=f"{workload} failed: {condition}")
    if condition := true_condition(item, done):
        return Verdict(finished=f"{workload} has finished ({condition})")
    reports = [report_pod(pod) for pod in pods]
    ready = sum(report.ready for report in reports)
    if problem := _first(reports, lambda report: report.problem):
        return Verdict(failure=problem)
    if ready >= wanted:
        return Verdict(finished=f"{ready_means}: {ready} of {wanted} pods are ready")
    enough = ""
    if least is not None and ready >= least:
        enough = (
            f"{ready} of {wanted} pods are ready and train; run.train.nodes_min is {least}, and "
            f"the others are taken in when they come: {describe_pods(pods)}"
        )
    stuck = _first(reports, lambda report: report.stuck)
    state = f"{ready} of {wanted} pods are ready; {describe_pods(pods)}"
    return Verdict(enough=enough, stuck=stuck, state=state)


def create(job: Job, api: Api) -> None:
    """Wait until all pods of the training are ready, or until its workload has finished.

    If the training can go on with fewer pods (`pods_min`), the wait also ends once that many pods
    have been ready for some seconds. It does not end at once, because pods that train together do
    not become ready in the same instant.

    If the run's own user stops the run meanwhile, the wait ends without an error.

    Raises:
        SuspendedError: somebody else has suspended the run. The run has not failed.
        TaskError: the training has failed, or a time limit is reached. The last lines of the pods
            are printed before that, if there are pods.
    """
    wait = _Wait(job, api)
    in_queue, for_pods = job.number("queue_seconds", 0), float(job.number("timeout_seconds"))
    while True:
        begin = time.monotonic()
        if not wait_in_queue(job, api, wait.workload, wait.path, wait.suspend, in_queue):
            return
        has_place = time.monotonic()
        _await_pods(wait, for_pods)
        if not wait.is_put_back:
            return
        # The engine's time limit covers all waits of this task together, so the time that has
        # passed is subtracted.
        in_queue = max(in_queue - round(has_place - begin), 1)
        for_pods = max(for_pods - (time.monotonic() - has_place), 1)


def _await_pods(wait: "_Wait", limit_seconds: float) -> None:
    """Wait until the pods are ready, or until Kueue puts the run back into its queue.

    Raises the errors of `create`.
    """
    job, workload = wait.job, wait.workload
    what = f"{wait.wanted} ready pods of {workload}"
    try:
        wait_for(what, wait.ask, limit_seconds, "trainingTimeoutSeconds")
    except SuspendedError:
        raise
    except GoneError as reason:  # Its text says what to do, and no pod with a log is left.
        raise TaskError(f"training failed: {reason}") from None
    except TaskError as reason:
        say(f"training failed: {reason}")
        last_lines(wait.api, job.namespace, wait.selector)
        raise TaskError(
            f"training failed: {reason}\nTo fix it: change the setting that caused it and run "
            f"pulumi up. If the cause was no setting, first run: kubectl -n {job.namespace} delete "
            f"{workload.typed} {workload.name}. After that, {AGAIN}"
        ) from None


class _Wait:
    """Observes one workload and its pods, and remembers for how long a problem has lasted."""

    def __init__(self, job: Job, api: Api) -> None:
        self.job = job
        self.api = api
        self.workload = Workload.from_json(job.mapping("workload"))
        kind = self.workload.api_version, self.workload.kind
        self.path = api.path(*kind, job.namespace, self.workload.name)
        self.selector = names.training_selector(job.owner, job.text("revision"))
        self.wanted = job.number("pods")
        self._record = read_record(api, job.namespace, job.owner)
        self.suspend = self._record.suspend if self._record else {}
        if self._record and self._record.how_ended and api.get(self.path) is not None:
            forget_end(api, self._record)  # It is the end of an earlier workload of this run.
        self._stuck = Patience(STUCK_SECONDS, time.monotonic)
        self._settled = Patience(SETTLED_SECONDS, time.monotonic)
        self._queued = Patience(QUEUE_SECONDS, time.monotonic)
        self._waits_for_place = job.number("queue_seconds", 0) > 0
        self.is_put_back = False
        """Whether the last wait for pods ended because the run is back in its queue."""
        self._failed_starts = FailedStarts(api, job.namespace)

    def ask(self) -> str:
        """Observe the workload and its pods once.

        Returns:
            Why the wait goes on. If the wait is over, the text is empty, and the reason for its end
            has been printed.

        Raises:
            TaskError: the training has failed, or its pods cannot become ready.
        """
        job, api, self.is_put_back = self.job, self.api, False
        item, pods = api.get(self.path), api.list(PODS.format(job.namespace), self.selector)
        if item is None and self._record and self._record.ttl:
            self._say_reached(_after_its_time(api, job), pods)
            return ""
        if item and seen_stopped(api, job.namespace, item, self.suspend):
            say(stopped_text(job, api, self.workload, item))
            return ""
        if item and (waits := held_back(api, job.namespace, item, self.suspend)):
            # Kueue has taken the place away from this run before its first step.
            if self._waits_for_place:
                self.is_put_back = True
                return ""
            if self._queued.is_over(waits.words):
                say(ends_well(self.workload, waits))
                return ""
            return waits.words
        self._queued.is_over("")
        return self._ask_pods(item, pods)

    def _ask_pods(self, item: Json | None, pods: list[Json]) -> str:
        """What `ask` returns for a workload that is not suspended."""
        verdict = self._judged(item, pods)
        if item is None:
            raise GoneError(f"{verdict.failure}. {AGAIN}")
        if verdict.failure:
            raise TaskError(verdict.failure)
        is_settled = self._settled.is_over(verdict.enough)
        if verdict.finished or is_settled:
            self._say_reached(verdict.finished or verdict.enough, pods)
            return ""
        if self._stuck.is_over(verdict.stuck):
            raise TaskError(verdict.stuck)
        namespace = self.job.namespace
        waits_for = words_of_controller(self.api, namespace, item, pods, self.wanted)
        failing = self._failed_starts.words(pods)
        # The state comes last, because a long line is cut, and the user can act on the others.
        return "; ".join(text for text in (failing, waits_for, verdict.state) if text)

    def _judged(self, item: Json | None, pods: list[Json]) -> Verdict:
        job = self.job
        return judge(
            self.workload,
            str(job.fields.get("uid") or ""),
            item,
            pods,
            self.wanted,
            job.texts("done"),
            job.texts("failed"),
            job.number("pods_min", self.wanted),
            str(job.fields.get("ready_means") or "all ranks have stepped"),
        )

    def _say_reached(self, words: str, pods: list[Json]) -> None:
        """Print the reason for the end of the wait.

        For several pods, also print what they have found about their shared volume.
        """
        say(words)
        if self.wanted > 1:
            say(volume_line(self.api, self.job.namespace, pods))


def _first(reports: list[PodReport], text_of: Callable[[PodReport], str]) -> str:
    return next((text for report in reports if (text := text_of(report))), "")


def _after_its_time(api: Api, job: Job) -> str:
    """The message about a run that has finished and whose workload was removed after that.

    Raises:
        GoneError: the run has failed, or it is not known how it ended.
    """
    record = read_record(api, job.namespace, job.owner)
    if record is None:
        raise GoneError(f"the run's record is gone: somebody has deleted it. {AGAIN}")
    try:
        ended = how_ended(api, record, Asker.from_json(job.mapping("own")))
        found = replace(record, how_ended=ended)
    except (ApiError, TaskError) as reason:
        raise GoneError(f"{gone_words(record, str(reason))}. {AGAIN}") from None
    words = gone_words(found)
    if not found.had_finished:
        raise GoneError(words)
    return f"the run has finished: {words}"
