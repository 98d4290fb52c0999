"""Storage `nfs-first-node`: the folder `dataRoot` of the first machine, which all nodes mount.

The volume is served by an NFS server that disttrain sets up on the first machine, from its
distribution's package (infra/platform/nfs_server.py). The folder is the same as with `host-path`,
so a stack that gets further machines keeps its data. Pods on the first machine mount the folder
over NFS, too, so that all pods use the same file system with the same locks.
"""

from dataclasses import dataclass, replace

from infra.storages.kind import Storage, StorageKind, StorageRequest
from infra.storages.nfs import MOUNT_OPTIONS, NfsOptions, check_mount_options, nfs


@dataclass(frozen=True)
class NfsFirstNodeOptions:
    """Options in the setting `storageOptions`.

    Args:
        mountOptions: options of mount.nfs, separated by commas.
    """

    mountOptions: str = MOUNT_OPTIONS  # noqa: N815 - as the stack's settings name it

    def __post_init__(self) -> None:
        check_mount_options(self.mountOptions)


def nfs_first_node(request: StorageRequest) -> Storage:
    """Return the storage for a folder of the first machine.

    A change of the machine's address, the folder, the options or the size makes a new volume.
    """
    given: NfsFirstNodeOptions = request.options
    options = NfsOptions(request.address, request.folder, given.mountOptions)
    made = nfs(replace(request, options=options))
    return replace(made, folder_on_host=request.folder, served_at=request.address)


KIND = StorageKind(
    name="nfs-first-node",
    make=nfs_first_node,
    options=NfsFirstNodeOptions,
    needs_own_machines=True,
)
