"""Which storage the preview refuses for a run, and which it accepts. The API servers are
stand-ins.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from infra import cluster_check
from infra.kube.api_server.access import Access
from infra.kube.errors import ApiError
from infra.kube.pods.room import nodes_with_room, pod_needs
from infra.kube.runs.pods_findings import RunPods
from infra.kube.volumes.storage_findings import StorageNeeds, storage_findings
from infra.names import GPU_RESOURCE, GPU_TOLERATION
from tests.unit.kube.pods.instances import node
from tests.unit.kube.server import ApiServer, Json, api_of

NEEDS = StorageNeeds("ml", "disttrain-pvc-class", False, "rwx", "ReadWriteMany", "50Gi", 1)


@dataclass
class Cluster(ApiServer):
    """A stand-in for a cluster with one storage class and one bound claim of that class.

    Args:
        asked: the size that the claim asks for.
        volume: the size of the claim's volume.
    """

    asked: str
    volume: str

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        del method, query, body
        if path.endswith("/storageclasses/rwx"):
            return {"provisioner": "filestore.example", "volumeBindingMode": "Immediate"}
        if path.endswith("/persistentvolumeclaims/disttrain-pvc-class"):
            spec = {"storageClassName": "rwx", "accessModes": ["ReadWriteMany"]}
            return {
                "spec": {**spec, "resources": {"requests": {"storage": self.asked}}},
                "status": {"phase": "Bound", "capacity": {"storage": self.volume}},
            }
        return {"items": []}


def problems(cluster: Cluster, size: str) -> list[str]:
    return storage_findings(api_of(cluster), replace(NEEDS, size=size)).problems


def test_volume_may_be_larger_than_asked() -> None:
    """A claim may be made larger or stay as it is, even if its volume is larger than the claim asks
    for. Google's Filestore, for example, gives 1 TiB to a claim for 50 GiB. Otherwise every `up`
    after the first would refuse the unchanged `dataSize`.
    """
    filestore = Cluster("50Gi", "1Ti")
    for size in ("50Gi", "60Gi", "2Ti"):
        assert problems(filestore, size) == []
    (said,) = problems(filestore, "40Gi")
    assert said == (
        "dataSize: '40Gi' cannot be used for the claim disttrain-pvc-class, which holds data and "
        "asks for 50Gi, because a claim can only grow. Set at least 50Gi"
    )


def test_growth_that_failed_can_be_taken_back() -> None:
    """A claim whose volume did not grow may ask for less again, if that is more than its volume
    has. Kubernetes allows this.
    """
    half_grown = Cluster("500Gi", "50Gi")
    assert problems(half_grown, "60Gi") == []
    assert problems(half_grown, "50Gi") != []


@dataclass
class Objects(ApiServer):
    """A stand-in for a cluster with the given objects.

    Args:
        objects: the objects by their paths; None: the credentials may not read the object.
    """

    objects: Mapping[str, Json | None]

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        del method, query, body
        if path in self.objects and self.objects[path] is None:
            raise ApiError(403, "forbidden")
        is_list = path.rpartition("/")[2] in ("nodes", "persistentvolumes", "storageclasses")
        return self.objects.get(path, {"items": []} if is_list else None)


CLAIM = "/api/v1/namespaces/ml/persistentvolumeclaims/data"
CLASS = "/apis/storage.k8s.io/v1/storageclasses/disks"
OWN = "/api/v1/namespaces/ml/persistentvolumeclaims/disttrain-pvc-class"
BOUND = {"storageClassName": "disks", "accessModes": ["ReadWriteOnce"]}
POOL_B = {"key": "pool", "operator": "In", "values": ["b"]}
NODES, VOLUMES = "/api/v1/nodes", "/api/v1/persistentvolumes"


def test_claim_of_a_hidden_class_passes() -> None:
    """A claim that is Pending is accepted, with a note, if the credentials may not read its class.
    Otherwise users with rights in one namespace alone could not use a claim that is bound only when
    its first pod starts. If the class can be read and binds at once, a Pending claim is refused.
    """
    spec = {"storageClassName": "disks", "accessModes": ["ReadWriteMany"]}
    claim = {"metadata": {"name": "data"}, "spec": spec, "status": {"phase": "Pending"}}
    needs = StorageNeeds("ml", "data", True, "", "", "", 1)
    found = storage_findings(api_of(Objects({CLAIM: claim, CLASS: None})), needs)
    assert found.problems == []
    assert found.notes == [
        "it was not checked whether the claim data, which is Pending, is bound when the first pod "
        "uses it: these credentials may not look there"
    ]
    at_once = {CLAIM: claim, CLASS: {"volumeBindingMode": "Immediate"}}
    (said,) = storage_findings(api_of(Objects(at_once)), needs).problems
    assert "it is Pending and not Bound" in said


def test_only_nodes_for_the_pods_count() -> None:
    """A claim that one node can mount is refused only if several nodes could hold the run's pods.
    Control planes, nodes without enough GPUs and nodes outside the run's `nodeSelector` do not
    count, and neither do nodes that the claim's volume cannot be used on.
    """
    control_plane = node("control", {}, {}, "node-role.kubernetes.io/control-plane:NoSchedule")
    gpus, more_gpus = (node(name, {"pool": name}, {GPU_RESOURCE: "8"}) for name in ("a", "b"))
    spec: Json = {
        "containers": [{"resources": {"limits": {GPU_RESOURCE: "4"}}}],
        "tolerations": [GPU_TOLERATION],
    }
    needs = replace(NEEDS, class_name="disks", access_mode="ReadWriteOnce", pods=2)

    there: dict[str, Json | None] = {CLASS: {"provisioner": "ebs"}}

    def said(nodes: list[Json], pod: Json, *later: str) -> list[str]:
        holding = partial(nodes_with_room, pod_needs(pod, 2, without=later))
        cluster = Objects({**there, NODES: {"items": nodes}})
        return storage_findings(api_of(cluster), replace(needs, holding=holding)).problems

    one = [control_plane, node("cpus", {}, {}), gpus]
    both = [*one, more_gpus]
    assert said(one, spec) == []
    assert said(both, {**spec, "nodeSelector": {"pool": "b"}}) == []
    (refused,) = said(both, spec)
    assert "the cluster has 2 nodes for these pods (a, b)" in refused
    # The stack installs the device plugin, so each node may get GPUs.
    (refused,) = said(one, spec, GPU_RESOURCE)
    assert "the cluster has 2 nodes for these pods (cpus, a)" in refused
    affinity = {"nodeSelectorTerms": [{"matchExpressions": [POOL_B]}]}
    there |= {
        OWN: {"spec": {**BOUND, "volumeName": "pv-1"}, "status": {"phase": "Bound"}},
        f"{VOLUMES}/pv-1": {
            "metadata": {"name": "pv-1"},
            "spec": {"nodeAffinity": {"required": affinity}},
        },
    }
    assert said(both, spec) == []  # the disk is on node b, so all pods are


def test_preview_knows_nodes_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """The preview passes on what the run's pods ask of a node, so that the check of the storage
    counts only the nodes for these pods.
    """
    nodes = [node("cpus", {}, {}), node("gpus", {}, {GPU_RESOURCE: "8"})]
    cluster = Objects({CLASS: {"provisioner": "ebs"}, NODES: {"items": nodes}})
    monkeypatch.setattr(cluster_check, "read_only_api", lambda *_: nullcontext(api_of(cluster)))
    container = {"name": "trainer", "resources": {"limits": {GPU_RESOURCE: "4"}}}
    pod = {"metadata": {}, "spec": {"containers": [container]}}
    needs = replace(NEEDS, class_name="disks", access_mode="ReadWriteOnce", pods=2)
    for without, nodes_for_pods in (((), 1), ((GPU_RESOURCE,), 2)):
        run = RunPods("ml", pod, 2, grows=False, without=without)
        found = cluster_check.ask(Access(kubeconfig="{}"), needs, [], run)
        assert any("which only one node" in said for said in found.problems) == (nodes_for_pods > 1)


def test_first_pod_decides_on_the_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note says so if the pod that prepares the data set, which asks for no GPU, could be placed
    where no training pod has room, and a volume is made where the first pod is. Such a volume is
    often a disk of one zone or one node, and a claim cannot change it.
    """
    nodes = [node("cpus", {}, {}), node("gpus", {"pool": "gpu"}, {GPU_RESOURCE: "8"})]
    class_ = {"provisioner": "ebs", "volumeBindingMode": "WaitForFirstConsumer"}
    objects: dict[str, Json | None] = {CLASS: class_, NODES: {"items": nodes}}
    monkeypatch.setattr(
        cluster_check, "read_only_api", lambda *_: nullcontext(api_of(Objects(objects)))
    )
    container = {"name": "trainer", "resources": {"limits": {GPU_RESOURCE: "4"}}}
    needs = replace(NEEDS, class_name="disks", access_mode="ReadWriteOnce")

    def said(needs: StorageNeeds, *, has_dataset: bool = True, **spec: Any) -> bool:
        pod = {"metadata": {}, "spec": {"containers": [container], **spec}}
        run = RunPods("ml", pod, 1, grows=False, has_dataset=has_dataset)
        notes = cluster_check.ask(Access(kubeconfig="{}"), needs, [], run).notes
        return any("it could be placed on cpus, where no training pod" in note for note in notes)

    assert said(needs)
    assert not said(needs, nodeSelector={"pool": "gpu"})
    assert not said(needs, has_dataset=False)  # The first pod is one of the training.
    assert not said(replace(needs, access_mode="ReadWriteMany"))
    objects[OWN] = {"spec": BOUND, "status": {"phase": "Bound"}}
    assert not said(needs)


def test_small_volume_is_not_free() -> None:
    """A volume that is smaller than `dataSize` does not count as a free volume. Kubernetes binds a
    claim only to a volume of its size or more, so the claim and its pods would stay Pending.
    """
    by_hand = {"provisioner": "kubernetes.io/no-provisioner"}
    needs = replace(NEEDS, class_name="disks")

    def said(capacity: str) -> list[str]:
        spec = {"storageClassName": "disks", "accessModes": ["ReadWriteMany"]}
        volume = {
            "metadata": {"name": "pv-1"},
            "spec": {**spec, "capacity": {"storage": capacity}},
            "status": {"phase": "Available"},
        }
        cluster = Objects({CLASS: by_hand, VOLUMES: {"items": [volume]}})
        return storage_findings(api_of(cluster), needs).problems

    assert said("50Gi") == said("1Ti") == []
    (refused,) = said("50G")
    assert "none of its volumes is free, has ReadWriteMany and at least 50Gi" in refused
