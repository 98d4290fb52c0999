"""A host behind sshd and sudo whose k3s is a stand-in in front of this lab's real cluster.

Kubernetes' API server, containerd and the kubelet are the sandbox's. Everything between them and
`pulumi up` is real: SSH, sudo, systemd, the project's scripts for k3s, the tunnel, and the transfer
of the image.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from infra.node.tunnel import is_open, local_port
from infra.platform.viewers import viewer_role_name
from sandbox.components import API_PORT, host_program
from sandbox.kubeconfig import write_kubeconfig
from sandbox.pki import Certificate, sign
from sandbox.stack import Stack
from tests.e2e.lab import NAMESPACE, Lab
from tests.node import lab as node
from tests.node import relay
from tests.node.host import Entry
from tests.node.releases import Source
from tests.node.rootfs import PASSWORD
from tests.operator.cluster import NAMESPACE as OPERATOR
from tests.operator.cluster import traces

USER = "admin"


class RemoteNode:
    """A host and the folder that it shares with the lab's cluster; call `close` at the end."""

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
        self._pki = scratch / "pki"
        self._pki.mkdir()
        for file in ("ca.crt", "ca.key"):
            shutil.copy(cluster.layout.pki / file, self._pki / file)
        self._administrators = 0
        self._new_administrator()
        here = ("setpriv", "--pdeathsig", "KILL", sys.executable, relay.__file__)
        there = f"{cluster.node_ip}:{API_PORT}"
        self._relay = subprocess.Popen([*here, str(real / "api.sock"), there])

    def stack(self, name: str, settings: dict[str, str]) -> Stack:
        """Return a stack of the whole program for this host, whose user's sudo needs a password."""
        over_ssh = {
            "cluster": "k3s",
            "kubeconfig": None,
            "clusterAccess": "tunnel",
            "host": "ssh",
            "sshHost": self.host.address,
            "sshUser": USER,
            "sshHostKey": self.node.host_key,
            # The doctor would report errors about the machine's control groups, and about a route
            # to the sandbox's services.
            "doctor": "none",
            "k3sVersion": node.VERSION,
            "k3sMirror": self.node.mirror.url,
        }
        stack = self.lab.stack(name, "sandbox", {**over_ssh, **settings})
        stack.set("sshPrivateKey", self.node.private_key, secret=True)
        stack.set("sudoPassword", PASSWORD, secret=True)
        return stack

    def has_called(self, word: str) -> bool:
        """Return whether k3s was called with this word."""
        return any(word in call.split() for call in self.node.calls())

    def written_since(self, before: dict[str, Entry]) -> list[str]:
        """Return the paths of the host that were written since the list `before`."""
        return node.rewritten(before, self.host.files())

    def lose(self) -> None:
        """Stop sshd and end the open tunnels, so that nobody reaches the host until `find`."""
        self.host.shell("systemctl stop ssh; pkill -KILL -x sshd; true")
        port = local_port({"host": self.host.address, "port": 22, "user": USER, "jump": None})
        node.wait_for("the tunnel to end", lambda: not is_open(port))

    def find(self) -> None:
        """Start sshd again after `lose`."""
        self.host.shell("systemctl start ssh")

    def second_address(self) -> str:
        """Give the host a second address and return it.

        If `sshHost` names the second address, the program takes the host for another one.
        """
        address = ".".join(["100", "127", *self.host.address.split(".")[2:]])
        self.host.shell(f"ip address replace {address}/32 dev lo")
        way = ["ip", "route", "replace", address, "via", self.host.address]
        subprocess.run(way, check=True)  # the route ends with the link to the host
        return address

    def empty_cluster(self) -> None:
        """Empty the cluster as if k3s was installed anew, so that earlier kubeconfigs are refused.

        A real new k3s refuses them because its certificate authority is another one.
        """
        self.remove_objects()
        self._new_administrator()

    def remove_objects(self) -> None:
        """Delete the objects that would vanish with a real k3s; the lab's cluster stays."""
        self.lab.kubectl("delete", "namespace", NAMESPACE, OPERATOR, "--ignore-not-found")
        self.lab.kubectl("delete", "pv", "--all")
        self.lab.kubectl("delete", "clusterrole", viewer_role_name(NAMESPACE), "--ignore-not-found")
        for name in traces(self.lab).get("crd", []):
            self.lab.kubectl("delete", "crd", name)

    def _new_administrator(self) -> None:
        """Make the kubeconfig that k3s writes next. Earlier kubeconfigs lose all rights."""
        self._remove_administrator()
        self._administrators += 1
        user = self._administrator
        sign(self._pki, Certificate(file=user, user=user))
        self.lab.kubectl(
            "create", "clusterrolebinding", user, "--clusterrole=cluster-admin", f"--user={user}"
        )
        write_kubeconfig(
            self.host.path("/lab/cluster") / "kubeconfig",
            server=f"https://127.0.0.1:{API_PORT}",
            name="default",
            pki=self._pki,
            certificate=user,
        )

    @property
    def _administrator(self) -> str:
        return f"k3s-admin-{self._administrators}"

    def _remove_administrator(self) -> None:
        if self._administrators:
            self.lab.kubectl("delete", "clusterrolebinding", self._administrator)

    def _wipe_node(self) -> None:
        """Remove the labels and annotations that the GPU Operator has put on the Nodes.

        The uninstallation of a real k3s would remove the Node, but the stand-in's cluster stays.
        """
        for item in self.lab.get("nodes")["items"]:
            for kind, command in (("labels", "label"), ("annotations", "annotate")):
                keys = item["metadata"].get(kind, {})
                if ours := [f"{key}-" for key in keys if key.startswith("nvidia.com/")]:
                    self.lab.kubectl(command, "node", item["metadata"]["name"], *ours)

    def close(self) -> None:
        """Stop the stand-in and the host, and remove what they have made in the lab's cluster."""
        self._remove_administrator()
        self._wipe_node()
        self._relay.kill()
        self._relay.wait()
        self.node.close()
