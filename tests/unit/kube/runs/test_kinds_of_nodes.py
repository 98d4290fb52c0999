"""What `pulumi preview` and `up` report about the processors and the GPUs of nodes."""

from collections.abc import Mapping
from typing import Any

from infra.kube.runs.pods_findings import RunPods, pods_findings
from infra.names import GPU_RESOURCE
from tests.unit.kube.server import ApiServer, Json, api_of

POD: Json = {"metadata": {}, "spec": {"containers": [{"name": "t", "resources": {}}]}}


class Cluster(ApiServer):
    """A stand-in for a cluster with a node for each of these kinds of processors."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if method == "POST":
            return body
        if path == "/api/v1/nodes":
            return {"items": [self._node(kind) for kind in self._kinds]}
        return {"items": []} if path.endswith("/resourcequotas") else None

    def _node(self, kind: str) -> Json:
        offers = {"pods": "9", GPU_RESOURCE: "8"}
        status = {"allocatable": offers, "nodeInfo": {"architecture": kind}}
        about = {"name": f"node-{kind}", "labels": {"nvidia.com/gpu.sharing-strategy": "mps"}}
        return {"metadata": about, "status": status, "spec": {}}


def test_image_for_other_processors_is_refused() -> None:
    """A run is refused before an image is built that none of its nodes could run. If some could, a
    note names the others.
    """
    run = RunPods("ml", POD, 1, grows=False, built_for="arm64")
    (problem,) = pods_findings(api_of(Cluster("amd64")), run).problems
    assert problem.startswith("imageDelivery: the image would be built for the processors")
    found = pods_findings(api_of(Cluster("amd64", "arm64")), run)
    assert found.problems == []
    (note,) = found.notes
    assert "(amd64: node-amd64; arm64: node-arm64)" in note


def test_shared_gpus_are_said() -> None:
    """A note names nodes whose GPUs are shared, if the run has several ranks."""
    container = {"name": "t", "resources": {"limits": {GPU_RESOURCE: "2"}}}
    pod = {"metadata": {}, "spec": {"containers": [container]}}
    found = pods_findings(api_of(Cluster("amd64")), RunPods("ml", pod, 1, grows=False))
    assert found.problems == []
    (note,) = found.notes
    assert note.startswith("parts of GPUs count as nvidia.com/gpu on node-amd64")
