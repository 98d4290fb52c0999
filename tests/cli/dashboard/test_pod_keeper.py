"""The dashboard's pod is started when a query needs it, and removed when nobody asks any more."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import cast

import pytest

from cli.dashboard import pod_keeper
from cli.dashboard.pod_keeper import PodKeeper
from cli.volume_pod import VolumePod
from infra.kube.errors import KubeconfigError, TaskError

LIMIT_SECONDS = 30


class Pods:
    """A stand-in for the cluster that counts the pods that were opened and closed.

    `reasons`: why the first pods do not start, one for each of them. After each, the keeper pauses
    until the test sets `is_heard`. Otherwise a query might get the next pod instead of the reason.
    """

    def __init__(self, reasons: tuple[str | Exception, ...] = ()) -> None:
        self.reasons = list(reasons)  # why the first ones do not start
        self.opened = self.closed = self.sleeps = 0
        self.has_slept = threading.Event()
        self.may_run, self.ends = True, False
        self.gone = threading.Event()
        self.removal_may_end = threading.Event()
        self.removal_may_end.set()
        self.is_heard = threading.Event()
        self.is_heard.set()

    def sleep(self, seconds: float) -> None:
        """Sleep for a moment, or end the keeper as a signal would once `ends` is set.

        From its third call on, `has_slept` is set.
        """
        assert self.is_heard.wait(LIMIT_SECONDS)
        self.sleeps += 1
        if self.sleeps > 2:
            self.has_slept.set()
        if self.ends:
            raise SystemExit
        time.sleep(min(seconds, 0.02))

    @contextmanager
    def open(self) -> Iterator[VolumePod]:
        if self.reasons:
            reason = self.reasons.pop(0)
            self.is_heard.clear()
            raise TaskError(reason) if isinstance(reason, str) else reason
        self.opened += 1
        self.gone.clear()
        try:
            yield cast(VolumePod, f"pod {self.opened}")
        finally:
            self.closed += 1
            self.gone.set()
            assert self.removal_may_end.wait(LIMIT_SECONDS)


@contextmanager
def kept(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, idle_seconds: float = 0.3
) -> Iterator[PodKeeper]:
    """Yield a PodKeeper that runs in a thread of its own, and end it afterwards."""
    monkeypatch.setattr(pod_keeper, "_may_run", lambda _: pods.may_run)
    monkeypatch.setattr(pod_keeper, "CHECK_SECONDS", 0.1)
    keeper = PodKeeper(pods.open, idle_seconds, pods.sleep)
    thread = threading.Thread(target=_keep, args=(keeper,))
    thread.start()
    try:
        yield keeper
    finally:
        pods.ends = True
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()


def _keep(keeper: PodKeeper) -> None:
    with suppress(SystemExit):
        keeper.keep()


def test_no_pod_is_started_before_a_query_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """While nobody asks, the keeper goes on to sleep and starts no pod."""
    pods = Pods()
    with kept(pods, monkeypatch) as keeper:
        assert pods.has_slept.wait(LIMIT_SECONDS)
        assert pods.opened == 0
        with keeper.using() as pod:
            assert cast(str, pod) == "pod 1"
    assert pods.opened == pods.closed == 1


def test_signal_removes_the_pod_while_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that ends the dashboard removes the pod, also while a query still uses it."""
    pods = Pods()
    with kept(pods, monkeypatch, idle_seconds=600) as keeper, keeper.using():
        pods.ends = True
        assert pods.gone.wait(LIMIT_SECONDS)


def test_queries_share_a_pod_and_it_goes_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries at the same time share one pod. Some time after the last query the pod is removed,
    and a later query gets a new one.
    """
    pods = Pods()
    with kept(pods, monkeypatch) as keeper:
        with keeper.using() as first, keeper.using() as second:
            assert first is second
        assert pods.gone.wait(LIMIT_SECONDS)
        with keeper.using() as third:
            assert cast(str, third) == "pod 2"


def test_pod_that_has_ended_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that no longer runs is removed, and the next query gets another one."""
    pods = Pods()
    with kept(pods, monkeypatch, idle_seconds=600) as keeper:
        with keeper.using():
            pods.may_run = False
            assert pods.gone.wait(LIMIT_SECONDS)
            pods.may_run = True
        with keeper.using() as pod:
            assert cast(str, pod) == "pod 2"


@pytest.mark.timeout(120)
def test_kubeconfig_that_is_replaced_does_not_end_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kubeconfig that cannot be read for a moment fails one query, and the next one gets its pod.
    A cloud's program may write the file anew just when it is read.
    """
    monkeypatch.setattr(pod_keeper, "RETRY_SECONDS", 0.1)
    pods = Pods((KubeconfigError("it names no clusters"),))
    with kept(pods, monkeypatch) as keeper:
        with pytest.raises(TaskError, match="it names no clusters"), keeper.using():
            pass
        pods.is_heard.set()
        with keeper.using() as pod:
            assert cast(str, pod) == "pod 1"


def test_pod_may_run_while_the_kubeconfig_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod whose state cannot be asked for, because the kubeconfig is being replaced, is taken for
    running.
    """

    def refuse(*_: object) -> bool:
        raise KubeconfigError("it names no clusters")

    monkeypatch.setattr(pod_keeper, "pod_is_running", refuse)
    pod = cast(VolumePod, SimpleNamespace(api=None, path=""))
    assert pod_keeper._may_run(pod)  # pyright: ignore[reportPrivateUsage]


def test_pod_is_kept_until_the_query_that_waits_has_it() -> None:
    """A pod is not idle while the query for which it was started has not got it yet. On a busy
    machine this query may go on late, and would have to wait for another pod.
    """
    pods, steps = Pods(), iter(range(3))

    def sleep(_: float) -> None:
        if next(steps, None) is None:
            raise SystemExit  # it has kept the pod for three looks

    keeper = PodKeeper(pods.open, idle_seconds=-1, sleep=sleep)
    keeper._waiting = 1  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(SystemExit):
        keeper._until_it_may_go(cast(VolumePod, "pod 1"))  # pyright: ignore[reportPrivateUsage]


def test_pod_that_is_being_removed_is_given_to_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that begins while a pod is being removed gets the next pod. The removal takes
    seconds, and a query with the old pod would fail.
    """
    pods = Pods()

    def query(keeper: PodKeeper) -> str:
        with keeper.using() as pod:
            return cast(str, pod)

    with kept(pods, monkeypatch, idle_seconds=600) as keeper, ThreadPoolExecutor(1) as beside:
        assert query(keeper) == "pod 1"
        pods.removal_may_end.clear()
        pods.may_run = False
        assert pods.gone.wait(LIMIT_SECONDS)
        pods.may_run = True
        found = beside.submit(query, keeper)
        deadline = time.monotonic() + LIMIT_SECONDS
        while not (keeper._waiting or found.done()):  # pyright: ignore[reportPrivateUsage]
            assert time.monotonic() < deadline, "the second query has not asked for a pod"
            time.sleep(0.01)
        pods.removal_may_end.set()
        assert found.result(LIMIT_SECONDS) == "pod 2"


def test_query_hears_why_there_is_no_pod_and_the_next_gets_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query fails with the reason why its pod did not start, and the next query tries again."""
    pods = Pods(("no room on the nodes",))
    with kept(pods, monkeypatch) as keeper:
        with pytest.raises(TaskError, match="no room on the nodes"), keeper.using():
            pass
        pods.is_heard.set()
        with keeper.using() as pod:
            assert cast(str, pod) == "pod 1"
