"""Starts the program of a pod, whose metrics a Prometheus reads."""

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
    """Start the program of a pod, and add its metrics to Prometheus with a pod's labels.

    `serves` is the port of its metrics; None: a free port. `more` are further environment
    variables.
    """
    environment = served(prometheus, node, serves or free_port())
    environment |= {VARIABLE: ",".join(network.transports), **(more or {})}
    return lab.start_entrypoint(
        config, node, nnodes, ranks, port, slow_disk_seconds, environment, accidents
    )


def served(prometheus: Prometheus, node: int, port: int) -> dict[str, str]:
    """Let Prometheus read a pod's metrics at a port, and return the variable that makes the pod
    serve there.
    """
    prometheus.add_target(port, {**NAMESPACE, "pod": f"train-multipod-{node}"})
    return {PORT_VARIABLE: str(port)}
