"""The volume and its claim, bound to each other beforehand. Pure."""

from typing import Any

from infra.labels import content_hash, metadata
from infra.manifests.names import CLAIM
from infra.settings import Settings

STORAGE = "storage"


def volume_name(settings: Settings) -> str:
    """Another folder or size is another volume: neither can be changed in place."""
    storage = settings.storage
    return f"{settings.namespace}-pv-{content_hash([str(storage.data_root), storage.size])}"


def volume(settings: Settings) -> dict[str, Any]:
    """Points at the data root on the node; deleting it leaves the folder as it is."""
    return {
        "metadata": metadata(volume_name(settings), None, STORAGE, settings.stack),
        "spec": {
            "capacity": {"storage": settings.storage.size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "hostPath": {"path": str(settings.storage.data_root), "type": "Directory"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": settings.namespace,
                "name": CLAIM,
            },
        },
    }


def claim(settings: Settings) -> dict[str, Any]:
    """Takes that volume and no other: the empty storage class keeps provisioners away."""
    return {
        "metadata": metadata(
            CLAIM,
            settings.namespace,
            STORAGE,
            settings.stack,
            # the provider's wait warns that there is no storage class, which is meant so; a claim
            # that stays unbound shows in the dataset Job's pod
            annotations={"pulumi.com/skipAwait": "true"},
        ),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": volume_name(settings),
            "resources": {"requests": {"storage": settings.storage.size}},
        },
    }
