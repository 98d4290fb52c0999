"""Task `dataset-progress`: prints what the Job of a data set waits for, and how far it is.

Pulumi's provider waits for this Job, but does not say that a quota has no room for its pod, that
its volume cannot be mounted, that it waits in a queue, or how far the preparation is. This task
prints that beside it. It decides nothing: how the Job has ended is reported by the provider, with
the last lines of its pod.
"""

import time

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.job import Job
from infra.kube.objects import Json, container_of, has_ended, is_running
from infra.kube.paths import JOBS, PODS, log_path, pod_path
from infra.kube.pods.last_lines import LONGEST_SECONDS
from infra.kube.pods.report import describe_pods
from infra.kube.queues.queue_findings import waiting
from infra.kube.runs.controller_words import words_of_controller
from infra.kube.waiting import HEARTBEAT_SECONDS, POLL_SECONDS, wait_for
from infra.kube.workload import true_condition

QUIET_SECONDS = 10.0  # a small data set is ready before, so nothing has to be said about it
APPEARS_SECONDS = 60.0  # the engine makes the Job just after it has called the hook


def create(job: Job, api: Api) -> None:
    """Print what the data set's Job waits for, until it has ended or is gone.

    The field `job` is its name, and `timeout_seconds` its longest time.

    Raises:
        ApiError: these credentials may not read Jobs or pods.
        TaskError: the Job has neither ended nor gone long after its longest time.
    """
    name = job.text("job")
    watch = _Watch(api, job.namespace, name)
    limit_seconds = job.number("timeout_seconds") + APPEARS_SECONDS
    wait_for(f"the data set's Job {name}", watch.ask, limit_seconds, "datasetTimeoutSeconds")


class _Watch:
    """Observes the Job and its pod."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self._selector = f"batch.kubernetes.io/job-name={name}"
        self._begin = time.monotonic()
        self._was_there = False
        self._line, self._read_at = "", -HEARTBEAT_SECONDS

    def ask(self) -> str:
        """Why the wait goes on; empty: the Job has ended.

        In the first QUIET_SECONDS it answers only if the Job has ended.
        """
        while (state := self._state()) and time.monotonic() - self._begin < QUIET_SECONDS:
            time.sleep(POLL_SECONDS)
        return state

    def _state(self) -> str:
        item = self._api.get(f"{JOBS.format(self._namespace)}/{self._name}")
        if item is None:
            is_over = self._was_there or time.monotonic() - self._begin > APPEARS_SECONDS
            return "" if is_over else "it does not exist yet"
        self._was_there = True
        if true_condition(item, ["Complete", "Failed"]):
            return ""
        pods = self._api.list(PODS.format(self._namespace), self._selector)
        for pod in pods:
            if is_running(pod) or has_ended(pod):
                return self._last_line(pod) or describe_pods(pods)
        said = (
            self._words_of_queue(item),
            words_of_controller(self._api, self._namespace, item, pods, 1),
            describe_pods(pods),
        )
        return "; ".join(filter(None, said))

    def _last_line(self, pod: Json) -> str:
        """The last line of the log; empty: it is not read yet.

        It is read rarely, because each new answer of `ask` is printed.
        """
        now = time.monotonic()
        is_quiet = now - self._begin < QUIET_SECONDS
        if not is_quiet and now - self._read_at >= HEARTBEAT_SECONDS:
            self._read_at = now
            path = log_path(pod_path(self._namespace, pod["metadata"]["name"]))
            query = {"container": container_of(pod), "tailLines": "1"}
            try:
                self._line = self._api.text(path, query, LONGEST_SECONDS).strip()
            except (ApiError, UnreachableError) as reason:
                # These credentials may not read logs, there is none yet, or the machine is lost.
                self._line = f"its log cannot be read: {reason}"
        return self._line

    def _words_of_queue(self, item: Json) -> str:
        try:
            place = waiting(self._api, self._namespace, item)
        except (ApiError, TaskError) as reason:
            return f"its place in the queue cannot be read: {reason}"
        return place.words if place else ""
