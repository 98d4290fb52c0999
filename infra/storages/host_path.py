"""Storage `host-path`: a folder of the one node, as a volume that is bound to the claim by name."""

from infra.labels import content_hash
from infra.storages.kind import (
    ONE_NODE,
    Storage,
    StorageKind,
    StorageRequest,
    claim_manifest,
    volume_manifest,
    with_source,
)


def host_path(request: StorageRequest) -> Storage:
    """Another folder or size is another volume, because neither can be changed in place."""
    identity = content_hash([request.folder, request.size])
    name = f"{request.namespace}-pv-{identity}"
    volume = volume_manifest(name, request.namespace, ONE_NODE, request.size)
    source = {"hostPath": {"path": request.folder, "type": "Directory"}}
    claim = claim_manifest(request.namespace, ONE_NODE, request.size, volume=name)
    return Storage(
        identity=identity,
        folder_on_host=request.folder,
        volume=name,
        objects=(("volume", with_source(volume, source)), ("claim", claim)),
    )


KIND = StorageKind(name="host-path", make=host_path)
