"""Reads where data sets, checkpoints and logs are stored, and what `destroy` does with them."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from infra.names import CLAIM_OF_CLASS
from infra.no_proxy import is_loopback
from infra.settings.cluster import ClusterSettings, lacks_address
from infra.settings.kinds import Chosen, StorageChoice
from infra.settings.namespace import NamespaceSettings
from infra.settings.reader import Reader

# k3s' uninstaller and the kubelet delete the content of these folders.
K3S_FOLDERS = ("/var/lib/rancher", "/var/lib/kubelet", "/etc/rancher", "/run/k3s")

_OF_KERNEL = ("/proc", "/sys", "/dev")


@dataclass(frozen=True)
class StorageSettings:
    """The data folder on the node, the volume's size, and whether `destroy` deletes the data."""

    data_root: PurePosixPath
    size: str
    purge: bool


def read_storage(
    reader: Reader,
    chosen: Chosen,
    kind: StorageChoice,
    cluster: ClusterSettings,
    namespace: NamespaceSettings,
) -> StorageSettings:
    """Read the data folder and the size, and check what the kind of storage needs.

    Args:
        reader: gives the values and collects the problems with them.
        chosen: the setting `storage`.
        kind: the kind that `storage` names.
        cluster: the cluster in which the claim will be.
        namespace: the namespace in which the claim will be.
    """
    root = _read_data_root(reader)
    purge = reader.choice("dataOnDestroy", ("keep", "purge")) == "purge"
    confirmed = reader.text("purgeConfirmed")
    if purge and kind.purges == "nothing":
        reader.problem(
            "dataOnDestroy",
            "purge",
            f"storage: {chosen.name} leads to data that does not belong to this stack",
            "Set keep, and delete the data where it is",
        )
    elif purge:
        by_folder = kind.purges == "folder"
        wanted = str(root) if by_folder else f"{namespace.name}/{CLAIM_OF_CLASS}"
        is_known = reader.are_right("dataRoot" if by_folder else "namespace")
        if is_known and confirmed not in (wanted, f"{wanted}/"):
            what = "value of dataRoot" if by_folder else "namespace and name of the claim"
            reader.problem(
                "purgeConfirmed",
                confirmed,
                "dataOnDestroy: purge would delete every data set, checkpoint and log unconfirmed",
                f"Set {wanted}, the {what}, or dataOnDestroy: keep",
            )
    _check_cluster_and_namespace(reader, chosen, kind, cluster, namespace)
    return StorageSettings(root, reader.size("dataSize"), purge)


def _check_cluster_and_namespace(
    reader: Reader,
    chosen: Chosen,
    kind: StorageChoice,
    cluster: ClusterSettings,
    namespace: NamespaceSettings,
) -> None:
    if kind.needs_cluster and cluster.installs_k3s:
        reader.problem(
            "storage",
            chosen.name,
            "the access to the data is in the cluster, which this stack installs and removes",
            "Set host-path, nfs or nfs-first-node, or use a cluster that stays (cluster: existing, "
            "or k3sExisting: adopt)",
        )
    if kind.needs_own_machines:
        _check_own_machines(reader, chosen, cluster)
    if kind.needs_namespace and not namespace.exists:
        reader.problem(
            "storage",
            chosen.name,
            "the claim is there before, and so is its namespace, which this stack must not make",
            "Set namespaceExisting: use, and namespace to the one that holds the claim",
        )


def _check_own_machines(reader: Reader, chosen: Chosen, cluster: ClusterSettings) -> None:
    if not cluster.installs_k3s:
        reader.problem(
            "storage",
            chosen.name,
            "it sets up an NFS server on the first machine of a k3s that this stack installs, and "
            "the machines of this cluster are somebody else's",
            "Set nfs with a server that exists, storage-class or existing-claim",
        )
    elif is_loopback(cluster.node_address) or lacks_address(reader, cluster):
        reader.problem(
            "nodeAddress",
            cluster.node_address,
            f"with storage: {chosen.name} it is the address at which every node mounts the data",
            "Set the first machine's address, as the other machines reach it",
        )


def _read_data_root(reader: Reader) -> PurePosixPath:
    """Read the data folder.

    A path with `..` is refused, because links decide where it leads, and so is a folder that k3s'
    uninstaller would delete.
    """
    text = reader.text(
        "dataRoot",
        pattern=r"(/[A-Za-z0-9._-]+)+/?",
        form="an absolute path of plain names",
        example="/var/lib/disttrain",
    )
    root = PurePosixPath(text or "/nowhere")
    if ".." in root.parts:
        reader.problem("dataRoot", text, "it has .. in it", "Set the folder's path without it")
        return root
    if kernel := next((each for each in _OF_KERNEL if root.is_relative_to(each)), None):
        reason = f"the kernel makes what is in {kernel}, and nothing stays there"
        reader.problem("dataRoot", text, reason, "Set a folder on a disk, such as /srv/disttrain")
        return root
    for folder in map(PurePosixPath, K3S_FOLDERS):
        if root.is_relative_to(folder) or folder.is_relative_to(root):
            reader.problem(
                "dataRoot",
                text,
                "k3s' uninstaller and the kubelet delete what is in their folders",
                f"Set a folder that neither contains nor is inside {', '.join(K3S_FOLDERS)}",
            )
            break
    return root
