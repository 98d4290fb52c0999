"""If two runs have to make room and one of them cannot be suspended, neither is suspended."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from infra.kube.errors import ApiError
from infra.kube.names import OWNER_LABEL
from infra.kube.workload import Workload
from infra.names import QUEUE_LABEL
from tests.cli.records import RECORD
from tests.unit.kube.runs.gone_run import GONE, Server, hand_over_of

FIRST = replace(
    RECORD, owner="77777777", stack="first", workload=Workload("batch/v1", "Job", "train-first")
)
QUEUED = replace(
    RECORD,
    owner="88888888",
    stack="queued",
    workload=Workload("batch/v1", "Job", "train-queued"),
    since=FIRST.since + timedelta(minutes=1),
)
OTHERS = {each.workload.name: each for each in (FIRST, QUEUED)}


class Cluster(Server):
    """A stand-in for a cluster with two other runs on two GPUs each, whose Kueue Workloads may not
    be read.
    """

    def __init__(self) -> None:
        super().__init__(replace(GONE, ttl=None), "")
        self.changes = list[str]()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        name = path.rpartition("/")[2]
        if method != "GET":
            self.changes.append(f"{method} {name}")
        if path == "/apis/kueue.x-k8s.io":
            return {"versions": [{"version": "v1beta2"}]}
        if path.startswith("/apis/kueue.x-k8s.io"):
            raise ApiError(403, "may not list workloads")
        if path.endswith("/configmaps"):
            records = [replace(each, gpus=2).to_object("disttrain") for each in OTHERS.values()]
            return {"items": [self.record, *records]}
        if name in OTHERS:
            owner = OTHERS[name].owner
            labels = {OWNER_LABEL: owner, **({QUEUE_LABEL: "gpus"} if "queued" in name else {})}
            about = {"name": name, "uid": owner, "labels": labels}
            return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": {}}
        return super().answer(method, path, query, body)


def test_no_run_is_suspended_in_vain() -> None:
    """No run is suspended if one of the runs that have to make room cannot be suspended. Otherwise
    the first one would stay suspended until its own next `pulumi up`, and the new run would still
    not start.
    """
    cluster = Cluster()
    with pytest.raises(ApiError, match="may not list workloads"):
        hand_over_of(cluster, made_again=True, ttl={})
    assert cluster.changes == []
