"""What an unchanged `pulumi up` says about the place of its run in a queue of Kueue.

The engine then repeats no task, so the program itself asks the cluster. The API server is a
stand-in.
"""

from collections.abc import Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pytest

from infra.kube.api_server.access import Access
from infra.kube.names import OWNER_LABEL
from infra.kube.queues.await_queue import queue_place
from infra.kube.runs import queue_place_now as asking
from infra.kube.runs.queue_place_now import queue_place_now
from infra.names import QUEUE_LABEL
from tests.unit.kube.runs.gone_run import GONE, Server
from tests.unit.kube.server import api_of

KUEUE = "/apis/kueue.x-k8s.io"
TAKEN = "couldn't assign flavors to pod set main: insufficient unused quota for cpu"
TOO_LARGE = (
    "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor any, previously "
    "considered podsets requests (0) + current podset request (400m) > maximum capacity (300m)"
)
BEFORE = "when pulumi up last waited for the run: "
WAITED = "Job train-indexed waits in queue gpus (place 2 of 2): 1 more needed. It starts by itself"


class Queue(Server):
    """A stand-in for a cluster with a run in the queue `gpus`.

    Args:
        suspended: whether Kueue holds the run back.
        active: whether the run's Workload is active; False after `./disttrain stop`.
        reason: why Kueue holds the run back; empty: it has not looked at the run yet.
        labels: the labels of the run's Job besides that of the owner.
    """

    def __init__(
        self,
        *,
        suspended: bool,
        active: bool = True,
        reason: str = TAKEN,
        labels: Mapping[str, str] = MappingProxyType({QUEUE_LABEL: "gpus"}),
    ) -> None:
        super().__init__(GONE, "")
        self.workload = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "train-indexed",
                "uid": "u1",
                "labels": {**labels, OWNER_LABEL: GONE.owner},
            },
            "spec": {"suspend": suspended},
            "status": {},
        }
        self.active, self.reason = active, reason

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        assert method == "GET"
        if path == KUEUE:
            return {"versions": [{"version": "v1beta2"}]}
        if path.endswith("/clusterqueues"):
            return {"items": []}
        if path.endswith("/workloads") and not self.reason:
            return {"items": []}
        if path.endswith("/workloads"):
            reserved = {
                "type": "QuotaReserved",
                "status": "False",
                "message": self.reason,
                "lastTransitionTime": "2026-11-23T00:17:49Z",
            }
            metadata = {"name": "job-train", "namespace": GONE.namespace, "uid": "w1"}
            spec = {"queueName": "gpus", "active": self.active}
            status = {"conditions": [reserved]}
            return {"items": [{"metadata": metadata, "spec": spec, "status": status}]}
        if path.endswith("/localqueues"):
            metadata = {"name": "gpus", "namespace": GONE.namespace}
            return {"items": [{"metadata": metadata, "spec": {"clusterQueue": "team"}}]}
        return super().answer(method, path, query, body)


def asked(monkeypatch: pytest.MonkeyPatch, server: Server, revision: str = GONE.revision) -> str:
    """Return what `queue_place_now` says of this cluster, if the present settings have this
    revision.
    """

    @contextmanager
    def look(access: Access, seconds: float) -> Any:
        del access, seconds
        try:
            yield api_of(server)
        except Exception as error:  # `queue_place_now` itself would say nothing then
            pytest.fail(f"the look ended with {error!r}")

    monkeypatch.setattr(asking, "read_only_api", look)
    return queue_place_now(Access(kubeconfig="{}"), GONE.namespace, GONE.owner, revision)


def test_unchanged_up_says_what_the_run_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output `queuePlace` of an unchanged `pulumi up` has Kueue's present reason for the wait,
    and not the line that the last `up` has printed. That line stays if the cluster says nothing.
    """
    now = asked(monkeypatch, Queue(suspended=True))
    start = "Job train-indexed waits in queue gpus (place 1 of 1 in ClusterQueue team): "
    assert now == f"{start}{TAKEN}. ./disttrain status shows when it starts"
    assert queue_place(f"{WAITED}\n", "gpus") == f"{BEFORE}{WAITED}"
    assert queue_place(f"{WAITED}\n", "gpus", now) == f"when pulumi up began: {now}"


def test_run_that_never_starts_is_promised_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged `pulumi up` does not promise a start to a run that asks for more than its queue
    can ever give, nor to one at which Kueue has not looked yet.
    """
    now = asked(monkeypatch, Queue(suspended=True, reason=TOO_LARGE))
    assert TOO_LARGE in now
    assert now.endswith(", and can never start. Ask for less, or for a larger quota")
    assert queue_place(f"{WAITED}\n", "gpus", now) == f"when pulumi up began: {now}"
    unseen = asked(monkeypatch, Queue(suspended=True, reason=""))
    assert unseen.endswith(". ./disttrain status shows whether it starts")


def test_unchanged_up_says_that_the_run_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output `queuePlace` no longer says that a run waits if the run has got its place since
    its last `up`. If the run already had its place at the last `up`, the output does not change.
    """
    now = asked(monkeypatch, Queue(suspended=False))
    assert now == "Job train-indexed has its place in queue gpus"
    assert queue_place(f"{WAITED}\n", "gpus", now) == f"when pulumi up began: {now}"
    trains = f"{now}\nall ranks have stepped: 1 of 1 pods are ready\n"
    assert queue_place(trains, "gpus", now) == queue_place(trains, "gpus") == f"{BEFORE}{now}"


@pytest.mark.parametrize(
    "server",
    [Queue(suspended=True, active=False), Queue(suspended=False, labels={}), Server(GONE, "")],
    ids=["stopped", "no-queue", "gone"],
)
def test_nothing_is_said_of_a_run_in_no_queue(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    """`queue_place_now` says nothing of a run that is stopped, is in no queue, or has no workload.
    This `up` resumes a stopped run, and its task then says what the run waits for.
    """
    assert asked(monkeypatch, server) == ""


def test_nothing_is_said_of_the_run_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """`queue_place_now` says nothing of a run with other settings than the present ones, because
    this `up` replaces it. The task of this `up` then says what the new run waits for.
    """
    assert asked(monkeypatch, Queue(suspended=True), "another-revision") == ""


def test_useless_kubeconfig_does_not_end_a_preview() -> None:
    """A kubeconfig that cannot be used gives an empty text and no error, so that a preview goes
    on.
    """
    access = Access(kubeconfig="{}")
    assert queue_place_now(access, GONE.namespace, GONE.owner, GONE.revision) == ""
