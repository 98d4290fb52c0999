"""The program of a pod that a Prometheus reads."""

from __future__ import annotations

from infra.networks import NETWORKS
from infra.networks.profile import NetworkProfile
from tests.trainer.forked import Forked
from tests.trainer.lab import Lab, free_port
from tests.trainer.monitoring.prometheus import Prometheus
from trainer.config import RunConfig
from trainer.monitoring.endpoint import PORT_VARIABLE
from trainer.transport.asked import VARIABLE

NAMESPACE = {"namespace": "disttrain"}


def start_pod(
    lab: Lab,
    prometheus: Prometheus,
    config: RunConfig,
    node: int,
    nnodes: int,
    port: int,
    slow_disk_seconds: float = 0.0,
    network: NetworkProfile = NETWORKS["pod-tcp"],
) -> Forked:
    """The program of a pod, and a target with the labels that a pod's discovery gives."""
    serves = free_port()
    prometheus.add_target(serves, {**NAMESPACE, "pod": f"train-multipod-{node}"})
    environment = {PORT_VARIABLE: str(serves), VARIABLE: ",".join(network.transports)}
    return lab.start_entrypoint(config, node, nnodes, 1, port, slow_disk_seconds, environment)
