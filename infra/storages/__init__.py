"""The kinds of storage: the choices of the setting `storage`."""

from infra.registry import Registry
from infra.storages import existing_claim, host_path, nfs, nfs_first_node, storage_class
from infra.storages.kind import StorageKind

STORAGES: Registry[StorageKind] = Registry(
    "storage",
    [host_path.KIND, nfs.KIND, nfs_first_node.KIND, storage_class.KIND, existing_claim.KIND],
)
