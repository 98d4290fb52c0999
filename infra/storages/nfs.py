"""Storage `nfs`: a folder of an NFS server that exists, for pods on any number of nodes."""

import re
from dataclasses import dataclass

from infra.labels import content_hash
from infra.names import MANY_NODES
from infra.storages.kind import (
    Storage,
    StorageKind,
    StorageRequest,
    claim_manifest,
    claim_name,
    volume_manifest,
    with_source,
)

# One TCP connection with locks in it (4.1), and writers that wait for a server that is away.
MOUNT_OPTIONS = "nfsvers=4.1,hard"


@dataclass(frozen=True)
class NfsOptions:
    """Options in the setting `storageOptions`.

    Args:
        server: name or address of the server, as the nodes reach it.
        path: the exported folder; the pods' user (uid 1000) has to be able to write to it.
        mountOptions: of mount.nfs, with commas between them.
    """

    server: str
    path: str
    mountOptions: str = MOUNT_OPTIONS  # noqa: N815 - as the stack's settings name it


def nfs(request: StorageRequest) -> Storage:
    """Another server, folder, option or size is another volume.

    Raises:
        ValueError: an option cannot be used.
    """
    options: NfsOptions = request.options
    _check(options)
    mount = [word.strip() for word in options.mountOptions.split(",") if word.strip()]
    identity = content_hash([options.server, options.path, mount, request.size])
    name = f"{request.namespace}-pv-{identity}"
    claim = claim_name(identity)
    volume = volume_manifest(name, request.namespace, MANY_NODES, request.size, claim)
    source = {
        "nfs": {"server": options.server, "path": options.path},
        **({"mountOptions": mount} if mount else {}),
    }
    binds = claim_manifest(request.namespace, MANY_NODES, request.size, name=claim, volume=name)
    return Storage(
        identity=identity,
        folder_on_host="",
        volume=name,
        objects=(("volume", with_source(volume, source)), ("claim", binds)),
        claim=claim,
        access_mode=MANY_NODES,
    )


def _check(options: NfsOptions) -> None:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?", options.server):
        raise ValueError(
            f"storageOptions.server: {options.server!r} is no name or address of a server; set "
            "one that the nodes can reach, such as nfs.example.com"
        )
    if not options.path.startswith("/") or ".." in options.path.split("/"):
        raise ValueError(
            f"storageOptions.path: {options.path!r} is no absolute path; set the folder that the "
            "server exports, such as /exports/training"
        )
    words = {word.strip() for word in options.mountOptions.split(",")}
    for word in ("soft", "softerr"):
        if word in words:
            raise ValueError(
                f"storageOptions.mountOptions: {word!r} lets writes fail while the server does not "
                "answer, and checkpoints would fail; set hard, with which writes wait"
            )


KIND = StorageKind(name="nfs", make=nfs, options=NfsOptions, purges="nothing")
