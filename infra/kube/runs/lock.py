"""The lock that excludes two hand-overs in one namespace at the same time: a Lease.

Its holder renews it from a thread. A holder that died is followed by the next one when the Lease
has not been renewed for LEASE_SECONDS. Times are the API server's, so that the clocks of two
people's machines do not matter; who writes is decided by the object's resourceVersion.
"""

import getpass
import os
import platform
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.objects import Json, part
from infra.kube.say import say
from infra.kube.waiting import wait_for

LEASE_SECONDS = 30
RENEW_SECONDS = 8.0
COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


class Lock:
    """A held lock; `check` before each write."""

    def __init__(self, api: Api, namespace: str, holder: str) -> None:
        self._api = api
        self._namespace = namespace
        self.identity = f"{holder} [{uuid.uuid4().hex[:8]}]"
        self._lost = ""

    @property
    def _path(self) -> str:
        return f"{COLLECTION.format(self._namespace)}/{names.LOCK_NAME}"

    def check(self) -> None:
        """Ask whether the lock is still ours, and renew it.

        What the renewing thread knows may be some seconds old. After a time without the API server
        the lock has expired for all, and somebody else may have taken it in these seconds.

        Raises:
            TaskError: somebody else holds it by now.
        """
        if not self._lost:
            self.renew()
        if self._lost:
            raise TaskError(
                f"this command lost the lock of namespace {self._namespace} to {self._lost}, "
                "because it could not renew it in time; run it again"
            )

    def note_loss(self, renewer: "Lock") -> None:
        """Take over what the renewing thread has found out."""
        self._lost = renewer._lost

    def try_take(self) -> str:
        """Take the lock; returns who holds it instead, or empty text when it is ours."""
        item = self._api.get(self._path)
        if item is None:
            try:
                self._api.create(COLLECTION.format(self._namespace), self._lease(None))
                return ""
            except ApiError as error:
                if error.status == 409:
                    return "somebody who came first"
                raise
        spec = part(item, "spec")
        holder = str(spec.get("holderIdentity") or "")
        if holder and holder != self.identity and not is_expired(spec, self._api.now()):
            return holder
        return "" if self._write(item) else "somebody who came first"

    def renew(self) -> None:
        """Note that the holder lives, or that the lock is lost."""
        while True:
            item = self._api.get(self._path)
            holder = str(part(item or {}, "spec").get("holderIdentity") or "")
            if item is None or holder != self.identity:
                self._lost = holder or "nobody: the Lease was removed"
                return
            if self._write(item):  # else it has changed meanwhile
                return

    def release(self) -> None:
        """Let the next one in at once; where that cannot be written, the Lease expires."""
        try:
            item = self._api.get(self._path)
            if item and part(item, "spec").get("holderIdentity") == self.identity:
                item["spec"]["holderIdentity"] = ""
                self._api.replace(self._path, item)
        except (ApiError, UnreachableError) as reason:
            say(f"the hand-over lock expires in {LEASE_SECONDS} s: {reason}")

    def _write(self, item: Json) -> bool:
        try:
            self._api.replace(self._path, self._lease(item))
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    def _lease(self, item: Json | None) -> Json:
        now = self._api.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata = {
            "name": names.LOCK_NAME,
            "namespace": self._namespace,
            "labels": {names.PART_OF_LABEL: names.PROJECT},
        }
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now,
        }
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": item["metadata"] if item else metadata,
            "spec": spec,
        }


def is_expired(spec: Json, now: datetime) -> bool:
    """Whether a Lease's holder has not renewed it for as long as it said it would."""
    if not spec.get("renewTime"):
        return True
    age = now - datetime.fromisoformat(str(spec["renewTime"]))
    return age.total_seconds() > float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)


def holder_text(what: str) -> str:
    """Who holds a lock, for those who wait for it: a stack or command, user, machine, process."""
    return f"{what} ({getpass.getuser()}@{platform.node()}, process {os.getpid()})"


@contextmanager
def held(api: Api, namespace: str, holder: str, limit_seconds: float) -> Iterator[Lock]:
    """Hold the lock of the namespace, waiting for others who do.

    Raises:
        TaskError: another one held it longer than `limit_seconds`.
    """
    lock = Lock(api, namespace, holder)

    def ask() -> str:
        other = lock.try_take()
        return f"it is held by {other}" if other else ""

    what = f"the hand-over lock of namespace {namespace}"
    stop = threading.Event()
    thread = threading.Thread(target=_renew, args=(lock, api, namespace, stop), daemon=True)
    try:
        wait_for(what, ask, limit_seconds)
        thread.start()
        yield lock
    finally:
        stop.set()
        if thread.ident is not None:
            thread.join(timeout=RENEW_SECONDS)
        lock.release()


def _renew(lock: Lock, api: Api, namespace: str, stop: threading.Event) -> None:
    own = Lock(Api(api.access, patience_seconds=0), namespace, "")
    own.identity = lock.identity
    while not stop.wait(RENEW_SECONDS):
        try:
            own.check()
        except (ApiError, UnreachableError):
            continue  # the next try may come in time
        except TaskError:
            lock.note_loss(own)
            return
