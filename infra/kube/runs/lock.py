"""The lock that keeps two hand-overs in one namespace from running at the same time.

The lock is a Kubernetes Lease. Its holder renews it from a thread. If the holder dies, the next one
can take the lock once the Lease has not been renewed for LEASE_SECONDS. All times come from the
clock of the API server, so the clocks of two people's machines do not matter. If two commands write
the Lease at once, its resourceVersion decides which of them succeeds.
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
from infra.kube.errors import ApiError, KubeconfigError, TaskError, UnreachableError
from infra.kube.objects import Json, part
from infra.kube.say import say
from infra.kube.waiting import wait_for

LEASE_SECONDS = 30
RENEW_SECONDS = 8.0
COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


class Lock:
    """The lock of one namespace. Its holder calls `check` before each write."""

    def __init__(self, api: Api, namespace: str, holder: str) -> None:
        self._api = api
        self._namespace = namespace
        self.identity = f"{holder} [{uuid.uuid4().hex[:8]}]"
        self._lost = ""

    @property
    def _path(self) -> str:
        return f"{COLLECTION.format(self._namespace)}/{names.LOCK_NAME}"

    def check(self) -> None:
        """Ask the API server whether this command still holds the lock, and renew it.

        What the renewing thread knows may be some seconds old. If the API server could not be
        reached for a while, the lock has expired, and another command may have taken it meanwhile.

        Raises:
            TaskError: this command no longer holds the lock.
        """
        if not self._lost:
            self.renew()
        if self._lost:
            raise TaskError(
                f"this command lost the lock of namespace {self._namespace} to {self._lost}, "
                "because it could not renew it in time; run it again"
            )

    def note_loss(self, renewer: "Lock") -> None:
        """Note whether the renewing thread has found that the lock is lost."""
        self._lost = renewer._lost

    def try_take(self) -> str:
        """Try to take the lock. Returns who else holds the lock; empty: this command holds it."""
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
        """Write the present time into the Lease, or note that the lock is lost."""
        while True:
            item = self._api.get(self._path)
            holder = str(part(item or {}, "spec").get("holderIdentity") or "")
            if item is None or holder != self.identity:
                self._lost = holder or "nobody: the Lease was removed"
                return
            if self._write(item):  # otherwise the Lease has changed since it was read
                return

    def release(self) -> None:
        """Give the lock back, so that the next command need not wait until the Lease expires."""
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
    """Whether the holder has not renewed the Lease within its `leaseDurationSeconds`."""
    if not spec.get("renewTime"):
        return True
    age = now - datetime.fromisoformat(str(spec["renewTime"]))
    return age.total_seconds() > float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)


def holder_text(what: str) -> str:
    """The name of a holder of the lock: `what`, the user, the machine and the process.

    Whoever waits for the lock sees this text.

    Args:
        what: the stack or the command that takes the lock.
    """
    return f"{what} ({_user()}@{platform.node()}, process {os.getpid()})"


def _user() -> str:
    """The name of this user, or its number if it has no account, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


@contextmanager
def held(api: Api, namespace: str, holder: str, limit_seconds: float) -> Iterator[Lock]:
    """Hold the lock of the namespace; wait first while another command holds it.

    Raises:
        TaskError: other commands held the lock for longer than `limit_seconds`.
    """
    lock = Lock(api, namespace, holder)

    def ask() -> str:
        other = lock.try_take()
        return f"it is held by {other}" if other else ""

    what = f"the hand-over lock of namespace {namespace}"
    stop = threading.Event()
    thread = threading.Thread(target=renew_until, args=(stop, lock, api, namespace), daemon=True)
    try:
        wait_for(what, ask, limit_seconds)
        thread.start()
        yield lock
    finally:
        stop.set()
        if thread.ident is not None:
            thread.join(timeout=RENEW_SECONDS)
        lock.release()


def renew_until(stop: threading.Event, lock: Lock, api: Api, namespace: str) -> None:
    """Renew the lock again and again, until `stop` is set or the lock is lost."""
    own = Lock(Api(api.access, patience_seconds=0), namespace, "")
    own.identity = lock.identity
    while not stop.wait(RENEW_SECONDS):
        try:
            own.check()
        except (ApiError, KubeconfigError, UnreachableError):
            continue  # the next try may come in time
        except TaskError:
            lock.note_loss(own)
            return
