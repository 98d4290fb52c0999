"""Storage `nfs`: a folder of an existing NFS server, for pods on any number of nodes."""

import re
from dataclasses import dataclass

from infra.labels import content_hash
from infra.names import MANY_NODES
from infra.registry import OptionError
from infra.storages.kind import (
    Storage,
    StorageKind,
    StorageRequest,
    claim_manifest,
    claim_name,
    volume_manifest,
    with_source,
)

# Version 4.1 uses one TCP connection, also for locks. With `hard`, writes wait while the server
# does not answer.
MOUNT_OPTIONS = "nfsvers=4.1,hard"


@dataclass(frozen=True)
class NfsOptions:
    """Options in the setting `storageOptions`.

    Args:
        server: name or address at which the nodes reach the server.
        path: the exported folder. The pods' user (uid 1000) must be able to write to it.
        mountOptions: options of mount.nfs, separated by commas.
    """

    server: str
    path: str
    mountOptions: str = MOUNT_OPTIONS  # noqa: N815 - as the stack's settings name it

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?", self.server):
            raise OptionError(
                "server",
                "it is no name or address of a server",
                "Set one that the nodes can reach, such as nfs.example.com",
            )
        if not self.path.startswith("/") or ".." in self.path.split("/"):
            raise OptionError(
                "path",
                "it is no absolute path",
                "Set the folder that the server exports, such as /exports/training",
            )
        plain = re.sub(r"[\x00-\x1f\x7f]", "", self.path).rstrip()
        if self.path != plain:
            raise OptionError(
                "path",
                "it ends with a blank or has a control character in it",
                f"Set the folder that the server exports, such as {plain}",
            )
        check_mount_options(self.mountOptions)


def check_mount_options(text: str) -> None:
    """Refuse options with which writes fail, and so checkpoints: at once, or while the server does
    not answer.

    Raises:
        OptionError: such an option is in the text.
    """
    words = {word.strip() for word in text.split(",")}
    if "ro" in words:
        reason = "'ro' lets nobody write, and the runs write their checkpoints there"
        raise OptionError("mountOptions", reason, "Remove it")
    for word in ("soft", "softerr"):
        if word in words:
            raise OptionError(
                "mountOptions",
                f"{word!r} lets writes fail while the server does not answer, and checkpoints "
                "would fail",
                "Set hard, with which writes wait",
            )


def nfs(request: StorageRequest) -> Storage:
    """Return the storage for an NFS folder.

    A change of the server, the folder, the options or the size makes a new volume.
    """
    options: NfsOptions = request.options
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


KIND = StorageKind(name="nfs", make=nfs, options=NfsOptions, purges="nothing")
