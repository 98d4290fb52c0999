"""Storage `host-path`: a folder of the nodes, as a volume for one claim."""

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
        shared: the folder is the same one on every node, such as a file system of the network that
            is mounted there. Kubernetes cannot see that, and believes it.
    """

    shared: bool = False


def host_path(request: StorageRequest) -> Storage:
    """Another folder or size is another volume, because neither can be changed in place.

    The claim of the default folder and size has the plain name.
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
