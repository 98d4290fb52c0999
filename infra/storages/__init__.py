"""The kinds of storage: choices of the setting `storage`."""

from infra.registry import Registry
from infra.storages import host_path
from infra.storages.kind import StorageKind

STORAGES: Registry[StorageKind] = Registry("storage", [host_path.KIND])
