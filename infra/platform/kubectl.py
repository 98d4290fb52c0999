"""Where scripts run kubectl, and how it is called there."""

import shlex
from dataclasses import dataclass

from infra.node.runner import LocalRunner, Runner
from infra.settings import ClusterSettings


@dataclass(frozen=True)
class Kubectl:
    """Where kubectl runs and how it is called.

    k3s' own is used on the node, as root; for an existing cluster it is this machine's.
    """

    runner: Runner
    command: str  # shell-quoted
    as_root: bool


def make_kubectl(cluster: ClusterSettings, host_runner: Runner) -> Kubectl:
    """The way to the cluster's kubectl."""
    if cluster.kind == "existing":
        context = ["--context", cluster.context] if cluster.context else []
        command = shlex.join(["--kubeconfig", cluster.kubeconfig, *context])
        return Kubectl(LocalRunner(), f"{cluster.kubectl} {command}", as_root=False)
    return Kubectl(host_runner, "k3s kubectl", as_root=True)
