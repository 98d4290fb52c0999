"""Keeps one pod on the volume for all queries. It is started when needed, and removed when unused.

The main thread keeps the pod, because signals end the main thread. So the pod is removed at the
end, whatever the other threads are doing.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn

from cli.stack_pod import pod_is_running
from cli.volume_pod import VolumePod
from infra.kube.errors import ApiError, KubeconfigError, TaskError, UnreachableError

DEADLINE_SECONDS = 1800  # the pod ends after this time, even if this program was killed
RENEW_SECONDS = 1200.0  # a pod of this age is replaced as soon as no query uses it
IDLE_SECONDS = 60.0
RETRY_SECONDS = 15.0
CHECK_SECONDS = 5.0
START_SECONDS = 660.0  # how long a query waits for the pod; its image may have to be pulled
STEP_SECONDS = 0.2
# The errors while the cluster does not answer, or while its kubeconfig is being replaced.
AWAY = (ApiError, KubeconfigError, UnreachableError)


class PodKeeper:
    """Keeps the pod.

    Args:
        open_pod: starts a pod; the end of its context removes the pod.
        idle_seconds: the pod is removed after this time without a query.
        sleep: waits. When a signal comes, the main thread is nearly always in this function.
    """

    def __init__(
        self,
        open_pod: Callable[[], AbstractContextManager[VolumePod]],
        idle_seconds: float = IDLE_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._open_pod, self._idle_seconds, self._sleep = open_pod, idle_seconds, sleep
        self._changed = threading.Condition()
        self._pod: VolumePod | None = None
        self._users, self._waiting = 0, 0
        self._used_at = time.monotonic()
        self._problem, self._failures = "", 0

    @contextmanager
    def using(self) -> Iterator[VolumePod]:
        """Wait for the pod, and yield it to a query. The main thread must not call this.

        Raises:
            TaskError: the pod does not start.
        """
        pod = self._wait_for_pod()
        try:
            yield pod
        finally:
            with self._changed:
                self._users -= 1
                self._used_at = time.monotonic()

    def _wait_for_pod(self) -> VolumePod:
        end = time.monotonic() + START_SECONDS
        with self._changed:
            failures = self._failures
            self._waiting += 1
            try:
                while self._pod is None:
                    if self._failures > failures:
                        raise TaskError(self._problem)
                    if time.monotonic() > end:
                        raise TaskError(f"waited {START_SECONDS:.0f} s for a pod on the volume")
                    self._changed.wait(1)
                self._users += 1
                return self._pod
            finally:
                self._waiting -= 1

    def keep(self) -> NoReturn:
        """Start the pod whenever a query waits for it. Only a signal ends this.

        The main thread has to call it.
        """
        while True:
            if not self._waiting:
                self._sleep(STEP_SECONDS)
                continue
            try:
                with self._open_pod() as pod:
                    self._offer(pod)
                    self._until_it_may_go(pod)
            except (*AWAY, TaskError) as reason:
                self._fail(str(reason))
                self._sleep(RETRY_SECONDS)
            finally:
                self._offer(None)

    def _offer(self, pod: VolumePod | None) -> None:
        with self._changed:
            self._pod = pod
            self._used_at = time.monotonic()
            self._changed.notify_all()

    def _take_back(self) -> None:
        """Offer the pod no longer, so that no further query begins with it."""
        with self._changed:
            self._pod = None

    def _fail(self, reason: str) -> None:
        with self._changed:
            self._problem, self._failures = reason, self._failures + 1
            self._changed.notify_all()

    def _until_it_may_go(self, pod: VolumePod) -> None:
        """Wait until the pod is idle, has ended, or is too old."""
        begun = checked = time.monotonic()
        while True:
            self._sleep(STEP_SECONDS)
            now = time.monotonic()
            if now - checked > CHECK_SECONDS:
                checked = now
                if not _may_run(pod):
                    self._take_back()  # at once, because the removal of the pod takes a while
                    return
            with self._changed:
                # A query that waits has been told of the pod, and is about to use it.
                is_free = not self._users and not self._waiting
                is_idle = is_free and now - self._used_at > self._idle_seconds
                is_old = is_free and now - begun > RENEW_SECONDS
                if is_idle or is_old or now - begun > DEADLINE_SECONDS:
                    self._pod = None  # under the lock, so that no query can begin meanwhile
                    return


def _may_run(pod: VolumePod) -> bool:
    """Whether the pod runs, or may run because the cluster does not answer."""
    try:
        return pod_is_running(pod.api, pod.path)
    except AWAY:
        return True
