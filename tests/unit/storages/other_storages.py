"""Settings of the storages that are no folder on the machine."""

NFS = {"storage": "nfs", "storageOptions": {"server": "nfs.example.com", "path": "/exports/train"}}
CLASS = {"storage": "storage-class", "storageOptions": {"className": "efs"}}
EXISTING = {
    "storage": "existing-claim",
    "storageOptions": {"claimName": "lustre"},
    "namespaceExisting": "use",
}
