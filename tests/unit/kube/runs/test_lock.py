"""What a hand-over does if it could not renew its lock for a while.

The API server is a stand-in here; tests/kube/test_hand_over.py asks a real one.
"""

from collections.abc import Mapping
from threading import Event
from typing import Any
from unittest.mock import Mock

import pytest

from infra.kube import names
from infra.kube.errors import ApiError, PluginError, TaskError
from infra.kube.runs.lock import COLLECTION, Lock, holder_text, renew_until
from tests.unit.kube.server import ApiServer, Json, api_of

LEASES = COLLECTION.format("disttrain")


class Leases(ApiServer):
    """A stand-in for an API server with one Lease, which can only be written by somebody who has
    read its newest version.
    """

    def __init__(self) -> None:
        self.lease: Json | None = None
        self.version = 0
        self.taken_by = ""  # who takes the Lease just before the next write

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if method == "POST":
            assert path == LEASES
            return self._write(body)
        assert path == f"{LEASES}/{names.LOCK_NAME}"
        if method == "PUT":
            if self.taken_by:
                self.is_taken_by(self.taken_by)
            if self.lease is None or body["metadata"] != self.lease["metadata"]:
                raise ApiError(409, "it has changed")
            return self._write(body)
        return self.lease

    def is_taken_by(self, holder: str) -> None:
        """Let another holder take the Lease."""
        assert self.lease
        self.taken_by = ""
        self._write({**self.lease, "spec": {**self.lease["spec"], "holderIdentity": holder}})

    def _write(self, body: Json) -> Json:
        self.version += 1
        about = {**body["metadata"], "resourceVersion": str(self.version)}
        self.lease = {**body, "metadata": about}
        return self.lease


@pytest.fixture
def server() -> Leases:
    return Leases()


@pytest.fixture
def lock(server: Leases) -> Lock:
    """Return a lock that this process has taken."""
    made = Lock(api_of(server), "disttrain", "stack dev")
    assert made.try_take() == ""
    return made


def test_lock_that_another_one_has_taken_is_noticed_before_the_next_write(
    server: Leases, lock: Lock
) -> None:
    """A hand-over fails before its next write if another one has taken its lock. After a minute
    without an API server, or on a laptop that slept, the Lease expires and another hand-over takes
    it. Otherwise both would write a record.
    """
    lock.check()
    server.is_taken_by("stack other")
    with pytest.raises(TaskError, match="lost the lock of namespace disttrain to stack other"):
        lock.check()


def test_lock_that_is_taken_as_it_is_renewed_is_noticed(server: Leases, lock: Lock) -> None:
    """A hand-over also fails if the lock is taken while it is being renewed."""
    server.taken_by = "stack other"
    with pytest.raises(TaskError, match="to stack other"):
        lock.check()


def test_lock_whose_lease_was_removed_is_noticed(server: Leases, lock: Lock) -> None:
    server.lease = None
    with pytest.raises(TaskError, match="nobody: the Lease was removed"):
        lock.check()


def test_lock_that_is_still_ours_is_renewed(server: Leases, lock: Lock) -> None:
    before = server.version
    lock.check()
    assert server.version > before


def test_lock_outlives_a_failed_login(
    server: Leases, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is renewed again after the credential plugin has failed once, for example because
    the network was gone for a moment. Otherwise the lock would expire while a run saves.
    """
    api, stop, failures = api_of(server), Event(), [PluginError("no network")]
    monkeypatch.setattr("infra.kube.runs.lock.RENEW_SECONDS", 0.001)
    before, answer = server.version, server.answer

    def fail_first(*words: Any) -> Json | None:
        if failures:
            raise failures.pop()
        if server.version > before:
            stop.set()
        return answer(*words)

    monkeypatch.setattr(server, "answer", fail_first)
    monkeypatch.setattr("infra.kube.runs.lock.Api", lambda *_, **__: api)  # pyright: ignore
    renew_until(stop, lock, api, "disttrain")
    assert server.version > before


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_holder_without_account_has_number(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder of a lock is named by its user id if the user has no account name. In a container,
    the user may have no entry in /etc/passwd, and Python then raises a KeyError, or an OSError in
    newer versions.
    """
    monkeypatch.setattr("getpass.getuser", Mock(side_effect=error("getpwuid(): uid not found")))
    monkeypatch.setattr("os.getuid", lambda: 4711)
    assert holder_text("stack dev").startswith("stack dev (user 4711@")
