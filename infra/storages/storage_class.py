"""Storage `storage-class`: a claim whose volume is provided by a storage class of the cluster."""

import re
from dataclasses import dataclass

from infra.labels import content_hash
from infra.names import CLAIM_OF_CLASS, MANY_NODES, ONE_NODE, ONE_POD
from infra.registry import OptionError
from infra.storages.kind import Storage, StorageKind, StorageRequest, claim_manifest

ACCESS_MODES = (MANY_NODES, ONE_NODE, ONE_POD)


@dataclass(frozen=True)
class StorageClassOptions:
    """Options in the setting `storageOptions`.

    Args:
        className: name of the storage class; `kubectl get storageclass` lists them.
        accessMode: ReadWriteMany; ReadWriteOnce if all pods are on one node; or ReadWriteOncePod if
            there is only one pod.
    """

    className: str  # noqa: N815 - as the stack's settings name it
    accessMode: str = MANY_NODES  # noqa: N815 - the same

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", self.className):
            raise OptionError(
                "className",
                "it is no name of a storage class",
                "Set one that `kubectl get storageclass` lists",
            )
        if self.accessMode not in ACCESS_MODES:
            raise OptionError(
                "accessMode",
                "it is no way of access that a training can use",
                f"Set {', '.join(ACCESS_MODES[:-1])} or {ACCESS_MODES[-1]}",
            )


def storage_class(request: StorageRequest) -> Storage:
    """Return the storage for a claim of a storage class.

    A change of the class or the access mode makes a new claim. A larger size grows the claim.
    """
    options: StorageClassOptions = request.options
    claim = claim_manifest(
        request.namespace,
        options.accessMode,
        request.size,
        name=CLAIM_OF_CLASS,
        class_name=options.className,
    )
    # A claim that a former stack has left may have to grow, although that stack owns the field
    # of its size. With this annotation, Pulumi changes the field nevertheless.
    claim["metadata"]["annotations"]["pulumi.com/patchForce"] = "true"
    return Storage(
        identity=content_hash([options.className, options.accessMode]),
        folder_on_host="",
        volume="",
        objects=(("claim", claim),),
        claim=CLAIM_OF_CLASS,
        access_mode=options.accessMode,
        class_name=options.className,
        size=request.size,
        data_go_with_claim=True,
        group_writes=True,
    )


KIND = StorageKind(
    name="storage-class",
    make=storage_class,
    options=StorageClassOptions,
    purges="claim",
    needs_cluster=True,
)
