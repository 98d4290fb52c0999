"""Defines what a kind of storage is: how the claim that all pods mount gets its volume."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from infra.labels import VOLUME_LABEL, content_hash
from infra.names import CLAIM, ONE_NODE
from infra.objects import NO_AWAIT, Manifest
from infra.registry import NoOptions
from infra.settings.asked import StorageRequest as StorageRequest


@dataclass(frozen=True)
class Storage:
    """The storage for a request: its claim, its volume, and how they are used.

    Args:
        identity: a text that changes if pods would see another volume. It is part of every pod's
            revision.
        folder_on_host: the folder of the node that holds the data; empty: there is none, so no
            folder is made, shown in the outputs or purged.
        volume: name of the PersistentVolume; empty: the cluster chooses one.
        objects: role in the stack and manifest of each object, in the order of creation. The
            component adds the labels.
        claim: name of the claim that pods mount.
        access_mode: access mode of the claim; empty: the mode of a claim that somebody else made.
        class_name: the storage class that provides the volume; empty: no class does.
        size: the size that a claim of a storage class requests; empty for other kinds.
        data_go_with_claim: whether the cluster may delete the data when the claim is deleted.
        group_writes: whether the volume's root folder belongs to root at first, so that the kubelet
            must give it to the group of the pods.
        served_at: address at which the first machine serves `folder_on_host` by NFS; empty: it
            serves nothing.
    """

    identity: str
    folder_on_host: str
    volume: str
    objects: tuple[tuple[str, Manifest], ...]
    claim: str = CLAIM
    access_mode: str = ONE_NODE
    class_name: str = ""
    size: str = ""
    data_go_with_claim: bool = False
    group_writes: bool = False
    served_at: str = ""


@dataclass(frozen=True)
class StorageKind:
    """One choice of the setting `storage`.

    Args:
        name: the value of the setting.
        make: makes the storage for a request, or raises ValueError if the request cannot be met. It
            also runs while the settings are read.
        options: dataclass of the keys that `storageOptions` may hold.
        purges: what `dataOnDestroy: purge` deletes: the content of the folder `dataRoot`, the
            claim with its volume, or nothing, because the data belong to somebody else.
        needs_cluster: whether the cluster must outlive `pulumi destroy`, because the data can only
            be reached through it, or must exist before the first `pulumi up`.
        needs_namespace: whether the namespace must exist before (`namespaceExisting: use`).
        needs_own_machines: whether it sets up something on the machines. They must then be those of
            a k3s that the stack installs, and have an address at which they reach the first one.
    """

    name: str
    make: Callable[[StorageRequest], Storage]
    options: type = NoOptions
    purges: Literal["folder", "claim", "nothing"] = "folder"
    needs_cluster: bool = False
    needs_namespace: bool = False
    needs_own_machines: bool = False


# A claim that selects its volume is bound at once, without a pod. Pods are made only after that. If
# a pod waits for the binding, Kubernetes 1.34's scheduler may check the pod so soon after the
# binding that it does not see it yet, and check the pod again only after 5 minutes.
AWAIT_BOUND: Mapping[str, str] = {"pulumi.com/waitFor": "jsonpath={.status.phase}=Bound"}


def claim_name(identity: str) -> str:
    """Return the name of the claim for the volume with this identity.

    A claim cannot be bound to another volume, so each volume has a claim of its own. If the claims
    of two volumes had the same name, the preview of a change of the storage would fail, and
    `pulumi up` would delete the claim before the pods that mount it have ended.
    """
    return f"{CLAIM}-{identity}"


def claim_manifest(
    namespace: str,
    access_mode: str,
    size: str,
    *,
    name: str = CLAIM,
    class_name: str = "",
    volume: str = "",
) -> Manifest:
    """Return the manifest of a claim.

    Args:
        namespace: Kubernetes namespace.
        access_mode: the access mode, such as `ReadWriteMany`.
        size: the requested size, such as `50Gi`.
        name: name of the claim.
        class_name: the storage class; empty: none, so that no provisioner makes a volume for this
            claim.
        volume: name of the volume that the claim is bound to; empty: the cluster chooses one.

    The volume names the claim, and the claim selects the volume by a label. If the claim named the
    volume instead, it would often be bound only after 15 s: two parts of Kubernetes' controller
    would then write to the volume at the same moment, and the part that also writes to the claim
    would fail and try again later.
    """
    # Without `volume`, Pulumi's provider is told not to wait. It would warn of a missing storage
    # class even where that is intended, and it would wait for ever for a class that binds at the
    # first pod. If such a claim stays unbound, the pod that waits for it shows that.
    wait = AWAIT_BOUND if volume else NO_AWAIT
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": dict(wait),
        },
        "spec": {
            "accessModes": [access_mode],
            "storageClassName": class_name,
            **({"selector": {"matchLabels": _volume_label(volume)}} if volume else {}),
            "resources": {"requests": {"storage": size}},
        },
    }


def volume_manifest(
    name: str, namespace: str, access_mode: str, size: str, claim: str = CLAIM
) -> Manifest:
    """Return the manifest of a volume for the claim `claim`, without the source of its data.

    The data stay when the volume is deleted.
    """
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": _volume_label(name)},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": [access_mode],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": claim,
            },
        },
    }


def _volume_label(volume: str) -> dict[str, str]:
    """Return the label by which a claim selects the volume; the name could be too long for it."""
    return {VOLUME_LABEL: content_hash(volume)}


def with_source(volume: Manifest, source: Manifest) -> Manifest:
    """Return the volume with `source`, the fields of its spec that say where the data are."""
    return {**volume, "spec": {**volume["spec"], **source}}
