"""Serves the metrics of a pod at one address: those of its program and of the run's files."""

from __future__ import annotations

import os
from collections.abc import Callable

from trainer.config import RunConfig
from trainer.launch.node import Node
from trainer.monitoring.endpoint import Endpoint, metrics_port
from trainer.monitoring.run_files import samples_of_files
from trainer.monitoring.text import as_text
from trainer.monitoring.vitals import Vitals
from trainer.transport.watch import TransportWatch


def start_endpoint(
    config: RunConfig,
    node: Node,
    vitals: Vitals,
    transport: TransportWatch,
    say: Callable[[str], None],
) -> Endpoint:
    """Serve the metrics of this pod if the environment names a port.

    Only node 0 serves the metrics from the run's files, so that a sum over the pods counts nothing
    twice.

    Raises:
        ConfigError: the variable DISTTRAIN_METRICS_PORT holds no port.
    """
    common = {"run": config.run_name, "node_rank": str(node.rank)}

    def page() -> str:
        samples = [*vitals.samples(), *transport.samples()]
        if node.rank == 0:
            samples += samples_of_files(config)
        return as_text(samples, common)

    return Endpoint(metrics_port(os.environ), page, say)
