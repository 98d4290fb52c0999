"""A host behind sshd and sudo whose k3s is a stand-in, in front of this lab's real cluster.

Kubernetes' API server, containerd and the kubelet are the sandbox's; what lies between them and
`pulumi up` is all there: SSH, sudo, systemd, k3s' scripts, the tunnel, the image's way.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from infra.tunnel import is_open, local_port
from sandbox.components import API_PORT, host_program
from sandbox.stack import Stack
from tests.e2e.lab import Lab
from tests.node import lab as node
from tests.node import relay
from tests.node.host import Entry
from tests.node.releases import Source
from tests.node.rootfs import PASSWORD

USER = "admin"


class RemoteNode:
    """The host and the folder that it shares with the cluster; close it."""

    def __init__(self, cluster_lab: Lab, scratch: Path) -> None:
        self.lab = cluster_lab
        cluster = cluster_lab.cluster
        shared = cluster.layout.root
        self.node = node.Lab(scratch, Source(None, "in front of a real cluster"), shared)
        self.host = self.node.host
        real = self.host.path("/lab/cluster")
        real.mkdir()
        shutil.copy(cluster.kubectl[0], real / "kubectl")
        shutil.copy(host_program("ctr"), real / "ctr")
        shutil.copy(relay.__file__, real / "relay.py")
        address = str(cluster.node_ip)
        (real / "kubeconfig").write_text(
            cluster.kubeconfig.read_text().replace(address, "127.0.0.1")
        )
        here = ("setpriv", "--pdeathsig", "KILL", sys.executable, relay.__file__)
        there = f"{address}:{API_PORT}"
        self._relay = subprocess.Popen([*here, str(real / "api.sock"), there])

    def stack(self, name: str, settings: dict[str, str]) -> Stack:
        """A stack of the whole program, for this host by a user whose sudo asks."""
        over_ssh = {
            "cluster": "k3s",
            "kubeconfig": None,
            "clusterAccess": "tunnel",
            "host": "ssh",
            "sshHost": self.host.address,
            "sshUser": USER,
            "sshHostKey": self.node.host_key,
            # errors: the machine's control groups, and a route to the sandbox's services
            "doctor": "none",
            "k3sVersion": node.VERSION,
            "k3sMirror": self.node.mirror.url,
        }
        stack = self.lab.stack(name, "sandbox", {**over_ssh, **settings})
        stack.set("sshPrivateKey", self.node.private_key, secret=True)
        stack.set("sudoPassword", PASSWORD, secret=True)
        return stack

    def has_called(self, word: str) -> bool:
        """Whether k3s was called with this word."""
        return any(word in call.split() for call in self.node.calls())

    def written_since(self, before: dict[str, Entry]) -> list[str]:
        """Paths of the host that were written to."""
        return node.rewritten(before, self.host.files())

    def lose(self) -> None:
        """From now on nobody gets in, by an open tunnel neither; `find` it again."""
        self.host.shell("systemctl stop ssh; pkill -KILL -x sshd; true")
        port = local_port(self.host.address, 22, USER)
        node.wait_for("the tunnel to end", lambda: not is_open(port))

    def find(self) -> None:
        """The way back of `lose`."""
        self.host.shell("systemctl start ssh")

    def close(self) -> None:
        self._relay.kill()
        self._relay.wait()
        self.node.close()
