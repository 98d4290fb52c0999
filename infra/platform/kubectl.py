"""Says on which machine scripts run kubectl for the cluster, and how they call it."""

import shlex
from dataclasses import dataclass

from infra.node.runner import LocalRunner, Runner
from infra.settings import ClusterSettings


@dataclass(frozen=True)
class Kubectl:
    """Where kubectl runs, and how it is called.

    For a k3s, its own kubectl runs as root on the first machine. For an existing cluster, the
    kubectl of this machine is used.
    """

    runner: Runner
    command: str  # The command is quoted for a shell.
    as_root: bool


def make_kubectl(cluster: ClusterSettings, host_runner: Runner) -> Kubectl:
    """Choose the kubectl for the cluster."""
    if cluster.kind == "existing":
        context = ["--context", cluster.context] if cluster.context else []
        command = shlex.join(["--kubeconfig", cluster.kubeconfig, *context])
        return Kubectl(LocalRunner(), f"{cluster.kubectl} {command}", as_root=False)
    return Kubectl(host_runner, "k3s kubectl", as_root=True)
