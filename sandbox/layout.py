"""Where everything of one cluster lives, and the names it uses on the machine."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

STATE_ROOT = Path("/var/lib/disttrain-sandbox")
NAME_PATTERN = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")
SOCKET_PATH_LIMIT = 107  # sun_path of unix(7), less its final zero
# The namespaces put something of their own on these, so state below them would be hidden.
COVERED = (Path("/run"), Path("/var/run"), Path("/var/log"), Path("/var/lib/kubelet"))


@dataclass(frozen=True)
class Layout:
    """Paths and host-wide names of the cluster `name` under `state_root`.

    Raises:
        ValueError: the name is not a DNS label of at most 30 characters, or the state folder
            cannot be used (relative, too long for a socket, hidden inside the namespaces).
    """

    name: str
    state_root: Path = STATE_ROOT

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name):
            raise ValueError(
                f"cluster name {self.name!r}: use 1 to 30 of a-z, 0-9 and '-', "
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

    @property
    def root(self) -> Path:
        """The cluster's own folder."""
        return self.state_root / self.name

    @property
    def data(self) -> Path:
        """For hostPath volumes; survives `down`."""
        return self.root / "data"

    @property
    def containerd_store(self) -> Path:
        """Images and snapshots; survives `down`, so that images are imported once."""
        return self.root / "containerd"

    @property
    def run(self) -> Path:
        """All that belongs to one start: keys, configuration, etcd's and kubelet's data."""
        return self.root / "run"

    @property
    def log(self) -> Path:
        """One file per component, and `pods/`."""
        return self.root / "log"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.root / "kubeconfig"

    @property
    def containerd_socket(self) -> Path:
        """Reached from the host by `ctr --address`."""
        return self.root / "containerd.sock"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.run / "pki"

    @property
    def kubelet(self) -> Path:
        """Seen as /var/lib/kubelet inside the namespaces."""
        return self.run / "kubelet"

    @property
    def cni(self) -> Path:
        """Seen as /var/lib/cni inside the namespaces."""
        return self.run / "cni"

    @property
    def node_name(self) -> str:
        """Name of the one node, and its host name."""
        return f"sandbox-{self.name}"

    @property
    def identity(self) -> str:
        """Unique on the machine: two state folders may each have a cluster `default`."""
        digest = hashlib.sha256(str(self.root).encode()).hexdigest()[:8]
        return f"{self.name}-{digest}"

    @property
    def host_link(self) -> str:
        """The host's end of the link; at most 15 characters (IFNAMSIZ)."""
        return f"dts-{self.identity[-8:]}"

    @property
    def cgroup(self) -> str:
        """Parent of the pods' control groups, from the hierarchy's root."""
        return f"/disttrain-sandbox/{self.identity}"
