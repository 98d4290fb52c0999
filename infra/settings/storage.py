"""The folder on the node that holds data sets, checkpoints and logs."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from infra.settings.reader import Reader

# k3s' uninstaller and the kubelet remove what lies in these folders.
K3S_FOLDERS = ("/var/lib/rancher", "/var/lib/kubelet", "/etc/rancher", "/run/k3s")


@dataclass(frozen=True)
class StorageSettings:
    """The data folder on the node and the volume's size."""

    data_root: PurePosixPath
    size: str
    purge: bool


def read_storage(reader: Reader) -> StorageSettings:
    """Read the data root; refuses one that k3s' uninstaller would delete."""
    text = reader.text(
        "dataRoot",
        pattern=r"(/[A-Za-z0-9._-]+)+/?",
        form="an absolute path of plain names",
        example="/var/lib/disttrain",
    )
    root = PurePosixPath(text or "/nowhere")
    for folder in map(PurePosixPath, K3S_FOLDERS):
        if root.is_relative_to(folder) or folder.is_relative_to(root) or ".." in root.parts:
            reader.problem(
                "dataRoot",
                text,
                "k3s' uninstaller and the kubelet delete what lies in their folders",
                f"Set a folder that neither holds nor lies in {', '.join(K3S_FOLDERS)}",
            )
            break
    purge = reader.choice("dataOnDestroy", ("keep", "purge")) == "purge"
    confirmed = reader.text("purgeConfirmed")
    if purge and confirmed != text:
        reader.problem(
            "purgeConfirmed",
            confirmed,
            "dataOnDestroy: purge would delete every data set, checkpoint and log unconfirmed",
            f"Set {text}, the value of dataRoot, or dataOnDestroy: keep",
        )
    return StorageSettings(root, reader.size("dataSize"), purge)
