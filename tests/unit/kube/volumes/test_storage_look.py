"""A claim that is there already: which sizes the look at the storage refuses."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from infra.kube.volumes.storage_look import StorageNeeds, storage_findings
from tests.unit.kube.server import ApiServer, Json, api_of

NEEDS = StorageNeeds("ml", "disttrain-pvc-class", False, "rwx", "ReadWriteMany", "50Gi", 1)


@dataclass
class Cluster(ApiServer):
    """Has a storage class and a bound claim of it.

    Args:
        asked: what the claim asks for.
        volume: the size of its volume.
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
    """Google's Filestore gives 1 TiB to a claim for 50 GiB. After the first `up`, each preview and
    each `up` said that the claim of 50 GiB can only grow, though nothing had changed."""
    filestore = Cluster("50Gi", "1Ti")
    for size in ("50Gi", "60Gi", "2Ti"):
        assert problems(filestore, size) == []
    (said,) = problems(filestore, "40Gi")
    assert said == (
        "dataSize: '40Gi' cannot be used for the claim disttrain-pvc-class, which holds data and "
        "asks for 50Gi, because a claim can only grow. Set at least 50Gi"
    )


def test_growth_that_failed_can_be_taken_back() -> None:
    """Kubernetes lets a claim ask for less than before, if that is more than its volume has."""
    half_grown = Cluster("500Gi", "50Gi")
    assert problems(half_grown, "60Gi") == []
    assert problems(half_grown, "50Gi") != []
