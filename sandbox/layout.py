"""The paths of a cluster, and the names that it uses on the machine."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

STATE_ROOT = Path("/var/lib/disttrain-sandbox")
NAME_PATTERN = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")
FURTHER_NODE = re.compile(r"node([2-9])")  # names of further nodes' folders: at most 9 nodes
MOST_NODES = 9
SOCKET_PATH_LIMIT = 107  # sun_path of unix(7), less its final zero
# In a cluster's namespaces other file systems are mounted over these folders. They would hide its
# state.
COVERED = (Path("/run"), Path("/var/run"), Path("/var/log"), Path("/var/lib/kubelet"))


@dataclass(frozen=True)
class Layout:
    """Paths and host-wide names of node `number` of the cluster `name` under `state_root`.

    The first node has the control plane, and its folder is the cluster's own. Each further node
    has a folder in that one.

    Raises:
        ValueError: the name is not a DNS label of at most 30 characters, or the state folder
            cannot be used (relative, too long for a socket, hidden inside the namespaces).
    """

    name: str
    state_root: Path = STATE_ROOT
    number: int = 1

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name):
            raise ValueError(
                f"the cluster name {self.name!r} is not possible: use 1 to 30 of a-z, 0-9 and '-', "
                "beginning and ending with a letter or digit"
            )
        if not self.state_root.is_absolute():
            raise ValueError(f"state folder {self.state_root}: give an absolute path")
        if any(self.state_root.is_relative_to(folder) for folder in COVERED):
            raise ValueError(
                f"state folder {self.state_root}: not below "
                + ", ".join(str(folder) for folder in COVERED)
            )
        if len(str(self.containerd_socket) + ".ttrpc") > SOCKET_PATH_LIMIT:
            raise ValueError(
                f"state folder {self.state_root}: too long, {self.containerd_socket}.ttrpc "
                f"has more than {SOCKET_PATH_LIMIT} characters"
            )

    def node(self, number: int) -> Layout:
        """The layout of another node of the same cluster."""
        return Layout(self.name, self.state_root, number)

    def further_nodes(self) -> list[Layout]:
        """The nodes after the first one that have a folder, whether they run or not."""
        found = (FURTHER_NODE.fullmatch(path.name) for path in self.cluster_root.glob("node*"))
        return [self.node(number) for number in sorted(int(m[1]) for m in found if m)]

    @property
    def cluster_root(self) -> Path:
        """The cluster's own folder."""
        return self.state_root / self.name

    @property
    def root(self) -> Path:
        """The node's own folder; the first node's is the cluster's."""
        return self.cluster_root if self.number == 1 else self.cluster_root / f"node{self.number}"

    @property
    def data(self) -> Path:
        """Folder for hostPath volumes, the same on all nodes; `down` keeps it."""
        return self.cluster_root / "data"

    @property
    def containerd_store(self) -> Path:
        """containerd's images and snapshots; `down` keeps them, so they are imported once."""
        return self.root / "containerd"

    @property
    def run(self) -> Path:
        """What belongs to one start: keys, configuration, and the data of etcd and the kubelet."""
        return self.root / "run"

    @property
    def log(self) -> Path:
        """Folder with a log file for each component, and with `pods/`."""
        return self.root / "log"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def containerd_socket(self) -> Path:
        """containerd's socket, which `ctr --address` reaches from the host."""
        return self.root / "containerd.sock"

    @property
    def address_file(self) -> Path:
        """File that holds a further node's address while it is up, for the first node's mirror."""
        return self.run / "address"

    @property
    def pki(self) -> Path:
        """Folder of the keys and certificates."""
        return self.run / "pki"

    @property
    def registries(self) -> Path:
        """Folder in which `<host:port>/hosts.toml` tells containerd how to reach a registry."""
        return self.run / "registries"

    @property
    def kubelet(self) -> Path:
        """Folder that is mounted as /var/lib/kubelet in the cluster's namespaces."""
        return self.run / "kubelet"

    @property
    def cni_plugins(self) -> Path:
        """Folder of links to the programs that give pods their network interfaces."""
        return self.run / "cni-plugins"

    @property
    def cni_settings(self) -> Path:
        """Folder in which containerd reads, also while it runs, which of these programs to use.

        It takes the file whose name is the first by the alphabet.
        """
        return self.run / "cni.d"

    @property
    def cni(self) -> Path:
        """Folder that is mounted as /var/lib/cni in the cluster's namespaces."""
        return self.run / "cni"

    @property
    def node_name(self) -> str:
        """Name of the node, which is also its host name."""
        return f"sandbox-{self.name}" + (f"-{self.number}" if self.number > 1 else "")

    @property
    def identity(self) -> str:
        """A name that no other node on this machine has, even one of another state folder."""
        digest = hashlib.sha256(str(self.root).encode()).hexdigest()[:8]
        return f"{self.name}-{digest}"

    @property
    def host_link(self) -> str:
        """Name of the link's end on the host; at most 15 characters (IFNAMSIZ)."""
        return f"dts-{self.identity[-8:]}"

    @property
    def cgroup(self) -> str:
        """Path of the pods' parent control group, below the hierarchy's root."""
        return f"/disttrain-sandbox/{self.identity}"
