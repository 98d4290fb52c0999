"""Storage `host-path`: a folder of the node is the volume of the claim."""

from dataclasses import dataclass

from infra.labels import content_hash
from infra.names import CLAIM, DATA_ROOT, DATA_SIZE, MANY_NODES, ONE_NODE
from infra.storages.kind import (
    Storage,
    StorageKind,
    StorageRequest,
    claim_manifest,
    claim_name,
    volume_manifest,
    with_source,
)


@dataclass(frozen=True)
class HostPathOptions:
    """Options in the setting `storageOptions`.

    Args:
        shared: whether the folder has the same content on every node, such as a network file system
            that is mounted on all of them. Kubernetes cannot check that.
    """

    shared: bool = False


def host_path(request: StorageRequest) -> Storage:
    """Return the storage for a folder of the node.

    Another folder or size gives another volume, because neither can be changed in a volume that
    exists. The claim for the default folder and size has the name CLAIM.
    """
    shared = isinstance(request.options, HostPathOptions) and request.options.shared
    mode = MANY_NODES if shared else ONE_NODE
    identity = content_hash([request.folder, request.size, *(["shared"] if shared else [])])
    name = f"{request.namespace}-pv-{identity}"
    is_usual = (request.folder, request.size, shared) == (DATA_ROOT, DATA_SIZE, False)
    claim = CLAIM if is_usual else claim_name(identity)
    volume = volume_manifest(name, request.namespace, mode, request.size, claim)
    source = {"hostPath": {"path": request.folder, "type": "Directory"}}
    binds = claim_manifest(request.namespace, mode, request.size, name=claim, volume=name)
    return Storage(
        identity=identity,
        folder_on_host=request.folder,
        volume=name,
        objects=(("volume", with_source(volume, source)), ("claim", binds)),
        claim=claim,
        access_mode=mode,
    )


KIND = StorageKind(name="host-path", make=host_path, options=HostPathOptions)
