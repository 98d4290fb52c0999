"""Storage `host-path`: a folder of the one node, as a volume that is bound to the claim by name."""

from infra.labels import content_hash
from infra.objects import Manifest
from infra.storages.kind import CLAIM, Storage, StorageKind, StorageRequest


def host_path(request: StorageRequest) -> Storage:
    """Another folder or size is another volume, because neither can be changed in place."""
    identity = content_hash([request.folder, request.size])
    volume = f"{request.namespace}-pv-{identity}"
    return Storage(
        identity=identity,
        folder_on_host=request.folder,
        volume=volume,
        objects=(("volume", _volume(request, volume)), ("claim", _claim(request, volume))),
    )


def _volume(request: StorageRequest, name: str) -> Manifest:
    """Deleting the volume leaves the folder as it is."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": request.size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "hostPath": {"path": request.folder, "type": "Directory"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": request.namespace,
                "name": CLAIM,
            },
        },
    }


def _claim(request: StorageRequest, volume: str) -> Manifest:
    """The empty storage class keeps provisioners from making another volume for this claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": CLAIM,
            "namespace": request.namespace,
            # The provider's wait would warn that there is no storage class, which is intended. A
            # claim that stays unbound shows in the pod that waits for it.
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": {"storage": request.size}},
        },
    }


KIND = StorageKind(name="host-path", make=host_path)
