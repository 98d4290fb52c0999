"""What a kind of storage is: how the claim that all pods mount gets its volume."""

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
    """A storage, worked out from a request.

    Args:
        identity: changes when pods would see another volume; part of every pod's revision.
        folder_on_host: the folder of the node that holds the data; empty: there is none, so no
            folder is made, shown in the outputs or purged.
        volume: name of the PersistentVolume; empty: the cluster chooses one.
        objects: role in the stack and manifest of each object, in the order of creation. The
            component adds the labels.
        claim: name of the claim that pods mount.
        access_mode: of the claim; empty: the one that a claim of somebody else has.
        class_name: the storage class that provides the volume; empty: none does.
        size: that a claim of a class asks for.
        data_go_with_claim: the cluster may delete the data once the claim is gone.
        group_writes: the volume's root belongs to root at first, and the kubelet has to give it to
            the group of the pods.
        served_at: address under which the first machine serves `folder_on_host` by NFS; empty: it
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
        make: works out the storage; raises ValueError where the request cannot be met. It runs
            while the settings are read, too.
        options: dataclass of the keys that `storageOptions` may hold.
        purges: what `dataOnDestroy: purge` deletes: the content of the folder `dataRoot`, the
            claim with its volume, or nothing, because the data are not this program's to delete.
        needs_cluster: the cluster has to outlive `pulumi destroy`, because the way to the data
            lies in it, or has to be there before the first `pulumi up`.
        needs_namespace: the namespace has to be there before (`namespaceExisting: use`).
        needs_own_machines: something is set up on the machines, which therefore have to be those of
            a k3s that the stack installs, with an address by which they reach the first one.
    """

    name: str
    make: Callable[[StorageRequest], Storage]
    options: type = NoOptions
    purges: Literal["folder", "claim", "nothing"] = "folder"
    needs_cluster: bool = False
    needs_namespace: bool = False
    needs_own_machines: bool = False


# A claim that selects its volume is bound without any pod, at once, and pods come after that:
# Kubernetes 1.34's scheduler may look at a pod again so soon after it has heard of a binding
# that it still sees none, and then leaves the pod alone for 5 minutes.
AWAIT_BOUND: Mapping[str, str] = {"pulumi.com/waitFor": "jsonpath={.status.phase}=Bound"}


def claim_name(identity: str) -> str:
    """Name of the claim for the volume of this identity; another volume has another claim.

    A claim cannot be bound to another volume. If both had the same name, a preview of a change of
    the storage would fail, and `pulumi up` would delete the claim before the pods that mount it
    have ended.
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
    """The claim of this program.

    Args:
        namespace: Kubernetes namespace.
        access_mode: such as `ReadWriteMany`.
        size: such as `50Gi`.
        name: of the claim.
        class_name: empty: no class, which keeps provisioners from making a volume for this claim.
        volume: name of the volume that it is bound to; empty: the cluster chooses one.

    The volume names the claim, and the claim selects the volume by a label. A claim that names its
    volume is often bound only after 15 s: two parts of Kubernetes' controller then mark the volume
    at the same moment, and the one that would also mark the claim fails and is run again later.
    """
    # Without `volume` the provider's own wait would warn that there is no storage class where that
    # is intended, and wait for ever where a class binds at the first pod. Such a claim that stays
    # unbound shows in the pod that waits for it.
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
            **({"selector": {"matchLabels": _mark(volume)}} if volume else {}),
            "resources": {"requests": {"storage": size}},
        },
    }


def volume_manifest(
    name: str, namespace: str, access_mode: str, size: str, claim: str = CLAIM
) -> Manifest:
    """A volume that waits for the claim `claim` of this program, without its source.

    Deleting it leaves the data as they are.
    """
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": _mark(name)},
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


def _mark(volume: str) -> dict[str, str]:
    """A name may be longer than the value of a label."""
    return {VOLUME_LABEL: content_hash(volume)}


def with_source(volume: Manifest, source: Manifest) -> Manifest:
    """The volume with the fields of its spec that say where the data are."""
    return {**volume, "spec": {**volume["spec"], **source}}
