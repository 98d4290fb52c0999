"""Task `await`: returns when all pods of a training are ready or its workload is done."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from infra.kube import names
from infra.kube.api import Api
from infra.kube.await_queue import (
    QUEUE_SECONDS,
    ends_well,
    held_back,
    suspended_text,
    wait_in_queue,
)
from infra.kube.controller_words import words_of_controller
from infra.kube.errors import ApiError, TaskError
from infra.kube.gone import AGAIN, forget_end, gone_words, how_ended
from infra.kube.job import Job
from infra.kube.kueue import is_stopped
from infra.kube.last_lines import last_lines
from infra.kube.making_place import PODS
from infra.kube.objects import Json
from infra.kube.pods import PodReport, describe_pods, report_pod
from infra.kube.record import Record, parse_record, record_path
from infra.kube.say import say
from infra.kube.volume_line import volume_line
from infra.kube.waiting import SETTLED_SECONDS, STUCK_SECONDS, Patience, wait_for
from infra.kube.workload import Workload, true_condition


class GoneError(TaskError):
    """The workload is not there, and its run had not finished."""


@dataclass(frozen=True)
class Verdict:
    """What one look at the workload and its pods means; the first text that is not empty counts.

    `enough` ends the wait when it has been so for a while, as `stuck` does.
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
    """Judge one look. Pure.

    Args:
        workload: names the object.
        uid: of the object that was made; empty to accept any.
        item: the object, None where there is none.
        pods: those of its revision.
        wanted: how many pods must be ready.
        done: condition types that mean it has finished.
        failed: condition types that mean it has failed.
        least: with how many ready pods the training goes on; None: with `wanted` ones.
        ready_means: what it says that all pods are ready.
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
    """Wait; see the module.

    Where a training needs not all of its pods, it is enough that so many have been ready for some
    seconds: pods that train together do not become ready in the same instant.

    Raises:
        TaskError: with the reason, after the pods' last lines were printed.
    """
    workload = Workload.from_json(job.mapping("workload"))
    path = api.path(workload.api_version, workload.kind, job.namespace, workload.name)
    pods_path = PODS.format(job.namespace)
    selector = names.training_selector(job.owner, job.text("revision"))
    record = _record(job, api)
    suspend = record.suspend if record else {}
    if record and record.how_ended and api.get(path) is not None:
        forget_end(api, record)  # that of a workload before this one
    wanted, uid = job.number("pods"), str(job.fields.get("uid") or "")
    done, failed = job.texts("done"), job.texts("failed")
    least = job.number("pods_min", wanted)
    ready_means = str(job.fields.get("ready_means") or "all ranks have stepped")
    patience = Patience(STUCK_SECONDS, time.monotonic)
    settling = Patience(SETTLED_SECONDS, time.monotonic)

    if not wait_in_queue(job, api, workload, path, suspend):
        return
    queued = Patience(QUEUE_SECONDS, time.monotonic)

    def ask() -> str:
        item, pods = api.get(path), api.list(pods_path, selector)
        if item is None and record and record.ttl:
            say(_after_its_time(api, job))
            if wanted > 1:
                say(volume_line(api, job.namespace, pods))
            return ""
        if item and is_stopped(api, job.namespace, item, suspend):
            raise TaskError(suspended_text(job, api, workload, item))
        if item and (place := held_back(api, job.namespace, item, suspend)):
            if queued.is_over(place.words):  # another run took its place before it had stepped
                say(ends_well(workload, place))
                return ""
            return place.words
        queued.is_over("")
        verdict = judge(workload, uid, item, pods, wanted, done, failed, least, ready_means)
        if verdict.failure:
            raise TaskError(verdict.failure)
        is_settled = settling.is_over(verdict.enough)
        if verdict.finished or is_settled:
            say(verdict.finished or verdict.enough)
            if wanted > 1:
                say(volume_line(api, job.namespace, pods))
            return ""
        if patience.is_over(verdict.stuck):
            raise TaskError(verdict.stuck)
        waits_for = words_of_controller(api, job.namespace, item, pods) if item else ""
        return "; ".join(text for text in (verdict.state, waits_for) if text)

    limit = job.number("timeout_seconds")
    try:
        wait_for(f"{wanted} ready pods of {workload}", ask, limit, "trainingTimeoutSeconds")
    except GoneError as reason:  # it says what to do, and there are no pods to show lines of
        raise TaskError(f"training failed: {reason}") from None
    except TaskError as reason:
        say(f"training failed: {reason}")
        last_lines(api, job.namespace, selector)
        raise TaskError(
            f"training failed: {reason}\nTo fix it: change the setting that caused it and run "
            f"pulumi up. If the cause was no setting, first run: kubectl -n {job.namespace} delete "
            f"{workload.typed} {workload.name}"
        ) from None


def delete(job: Job, api: Api) -> None:
    """Nothing of the wait stays behind."""
    del job, api


def _first(reports: list[PodReport], text_of: Callable[[PodReport], str]) -> str:
    return next((text for report in reports if (text := text_of(report))), "")


def _record(job: Job, api: Api) -> Record | None:
    item = api.get(record_path(job.namespace, job.owner))
    return parse_record(item) if item else None


def _after_its_time(api: Api, job: Job) -> str:
    """What is said of a run that has finished and whose workload has gone since.

    Raises:
        GoneError: the run failed, or its end is not known.
    """
    record = _record(job, api)
    if record is None:
        raise GoneError(f"the run's record is gone: somebody has deleted it. {AGAIN}")
    try:
        found = replace(record, how_ended=how_ended(api, record))
    except (ApiError, TaskError) as reason:
        raise GoneError(f"{gone_words(record, str(reason))}. {AGAIN}") from None
    words = gone_words(found)
    if not found.had_finished:
        raise GoneError(words)
    return f"the run has finished: {words}"
