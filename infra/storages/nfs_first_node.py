"""Storage `nfs-first-node`: the folder `dataRoot` of the first machine, which the others mount.

The volume leads to an NFS server that this program sets up on that machine from its distribution's
package; infra/platform/nfs_server.py is that part. The folder is the one of `host-path`, so a stack
that becomes one of several machines finds its data where they are. The pods of the first machine
mount it over NFS too: so all pods see one file system, with one kind of locks.
"""

from dataclasses import dataclass, replace

from infra.storages.kind import Storage, StorageKind, StorageRequest
from infra.storages.nfs import MOUNT_OPTIONS, NfsOptions, check_mount_options, nfs


@dataclass(frozen=True)
class NfsFirstNodeOptions:
    """Options in the setting `storageOptions`.

    Args:
        mountOptions: of mount.nfs, with commas between them.
    """

    mountOptions: str = MOUNT_OPTIONS  # noqa: N815 - as the stack's settings name it

    def __post_init__(self) -> None:
        check_mount_options(self.mountOptions)


def nfs_first_node(request: StorageRequest) -> Storage:
    """Another address of the first machine, folder, option or size is another volume."""
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
