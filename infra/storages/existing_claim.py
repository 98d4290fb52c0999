"""Storage `existing-claim`: mounts a claim that somebody else has made, and never changes it."""

import re
from dataclasses import dataclass

from infra.labels import content_hash
from infra.registry import OptionError
from infra.storages.kind import Storage, StorageKind, StorageRequest


@dataclass(frozen=True)
class ExistingClaimOptions:
    """Options in the setting `storageOptions`.

    Args:
        claimName: name of the claim, in the namespace of the setting `namespace`. The pods' user
            (uid 1000) must be able to write to its volume.
    """

    claimName: str  # noqa: N815 - as the stack's settings name it

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", self.claimName):
            raise OptionError(
                "claimName",
                "it is no name of a claim",
                "Set one that `kubectl -n NAMESPACE get persistentvolumeclaim` lists",
            )


def existing_claim(request: StorageRequest) -> Storage:
    """Return the storage for an existing claim. No object is made, and the claim is not changed."""
    name = request.options.claimName
    return Storage(
        identity=content_hash([request.namespace, name]),
        folder_on_host="",
        volume="",
        objects=(),
        claim=name,
        access_mode="",
    )


KIND = StorageKind(
    name="existing-claim",
    make=existing_claim,
    options=ExistingClaimOptions,
    purges="nothing",
    needs_cluster=True,
    needs_namespace=True,
)
