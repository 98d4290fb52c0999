"""What a kind of storage is: how the claim that all pods mount gets its volume."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infra.objects import Manifest
from infra.registry import NoOptions

CLAIM = "disttrain-pvc"


@dataclass(frozen=True)
class StorageRequest:
    """What the settings say about storage.

    Args:
        namespace: Kubernetes namespace of the claim.
        folder: the setting `dataRoot`, a folder of the node.
        size: the setting `dataSize`, such as `50Gi`.
        options: an instance of the kind's options dataclass.
    """

    namespace: str
    folder: str
    size: str
    options: Any = None


@dataclass(frozen=True)
class Storage:
    """A storage, worked out from a request.

    Args:
        identity: changes when pods would see another volume; part of every pod's revision.
        folder_on_host: the folder of the node that holds the data; empty: there is none, so no
            folder is made, shown in the outputs or purged.
        volume: name of the PersistentVolume; empty: the cluster chooses one.
        objects: role in the stack and manifest of each object, in the order of creation. The
            component adds the labels.
    """

    identity: str
    folder_on_host: str
    volume: str
    objects: tuple[tuple[str, Manifest], ...]


@dataclass(frozen=True)
class StorageKind:
    """One choice of the setting `storage`.

    Args:
        name: the value of the setting.
        make: works out the storage; raises ValueError where the request cannot be met.
        options: dataclass of the keys that `storageOptions` may hold.
    """

    name: str
    make: Callable[[StorageRequest], Storage]
    options: type = NoOptions
