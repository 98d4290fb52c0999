"""Which version of Kueue's objects this program uses, by the versions that a cluster serves."""

from typing import Any, cast

import pytest

from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.queues.kueue import served_version
from infra.kube.queues.queue_findings import queue_findings


class Discovery:
    """Stands in for a cluster whose answer about one API group is known."""

    def __init__(self, *versions: str) -> None:
        self.versions = versions

    def get(self, path: str) -> dict[str, Any] | None:
        assert path == "/apis/kueue.x-k8s.io"
        served = [{"version": version} for version in self.versions]
        return {"versions": served} if served else None


def cluster(*versions: str) -> Api:
    return cast(Api, Discovery(*versions))


def test_newest_known_version_is_asked_for() -> None:
    """The newest version that both the cluster and this program know is used. Without Kueue the
    version is empty.
    """
    assert served_version(cluster("v1beta1", "v1beta2")) == "v1beta2"
    assert served_version(cluster("v1beta1")) == "v1beta1"
    assert served_version(cluster("v1", "v1beta2")) == "v1beta2"
    assert served_version(cluster()) == ""


def test_unknown_version_is_named() -> None:
    with pytest.raises(TaskError, match="as v1, and this program only reads"):
        served_version(cluster("v1"))
    (problem,) = queue_findings(cluster("v1"), "any", "gpus").problems
    assert problem.startswith("queue: 'gpus' cannot be used: the cluster serves")


def test_queue_is_refused_where_there_is_no_kueue() -> None:
    (problem,) = queue_findings(cluster(), "any", "gpus").problems
    assert "the cluster serves no kueue.x-k8s.io, so Kueue is not there. Install it" in problem
    assert "pulumi config rm queue" in problem
