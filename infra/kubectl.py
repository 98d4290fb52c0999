"""Runs kubectl scripts where the cluster can be reached, and words commands for people."""

import shlex
from dataclasses import dataclass

from infra.runner import LocalRunner, Runner
from infra.settings import ClusterSettings, HostSettings


@dataclass(frozen=True)
class Kubectl:
    """Where kubectl runs and how it is called.

    k3s' own is used on the node, as root; for an existing cluster it is this machine's.
    """

    runner: Runner
    command: str  # shell-quoted, without what a person has to put before it
    as_root: bool
    prefix: str = ""  # for a person: how to get to where `command` runs

    def for_people(self, arguments: str) -> str:
        """A command line to paste into a shell on this machine; `arguments` are shell text."""
        if not self.prefix:
            return f"{self.command} {arguments}"
        inner = f"sudo {self.command} {arguments}"
        return inner if self.prefix == "sudo" else f"{self.prefix} {shlex.quote(inner)}"


def make_kubectl(cluster: ClusterSettings, host: HostSettings, host_runner: Runner) -> Kubectl:
    """The way to the cluster's kubectl."""
    if cluster.kind == "existing":
        context = ["--context", cluster.context] if cluster.context else []
        command = shlex.join(["--kubeconfig", cluster.kubeconfig, *context])
        return Kubectl(LocalRunner(), f"{cluster.kubectl} {command}", as_root=False)
    if host.ssh is None:
        return Kubectl(host_runner, "k3s kubectl", as_root=True, prefix="sudo")
    login = ["ssh", "-p", str(host.ssh.port), f"{host.ssh.user}@{host.ssh.host}"]
    return Kubectl(host_runner, "k3s kubectl", as_root=True, prefix=shlex.join(login))
