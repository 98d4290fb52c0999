"""The program of a pod that a Prometheus reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.networks import NETWORKS
from infra.networks.profile import NetworkProfile
from tests.trainer.accidents import Accident
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
    ranks: int = 1,
    serves: int | None = None,
    more: Mapping[str, str] | None = None,
    accidents: Sequence[Accident] = (),
) -> Forked:
    """The program of a pod, and a target with the labels that a pod's discovery gives.

    `serves`: the port of its metrics; None: any. `more`: further variables of its environment.
    """
    environment = served(prometheus, node, serves or free_port())
    environment |= {VARIABLE: ",".join(network.transports), **(more or {})}
    return lab.start_entrypoint(
        config, node, nnodes, ranks, port, slow_disk_seconds, environment, accidents
    )


def served(prometheus: Prometheus, node: int, port: int) -> dict[str, str]:
    """Has Prometheus read a pod at a port; returns the variable by which the pod serves there."""
    prometheus.add_target(port, {**NAMESPACE, "pod": f"train-multipod-{node}"})
    return {PORT_VARIABLE: str(port)}
