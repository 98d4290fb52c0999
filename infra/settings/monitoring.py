"""How Prometheus gets at the runs: the port of their metrics, and what the cluster is told."""

from typing import Literal, cast

from infra.names import MASTER_PORT, STORE_PORTS
from infra.settings.reader import Reader

Monitoring = Literal["none", "existing"]
_FIRST_PORT = 1024  # pods do not run as root, and need not be allowed a port below


def read_monitoring(reader: Reader) -> Monitoring:
    """Read what the platform tells the cluster's own monitoring."""
    return cast(Monitoring, reader.choice("monitoring", ("none", "existing")))


def read_metrics_port(reader: Reader) -> int:
    """Read the port at which each training pod offers its metrics; 0: none."""
    port = reader.integer("metricsPort", at_least=0, at_most=65535)
    if 0 < port < _FIRST_PORT:
        reader.problem(
            "metricsPort",
            port,
            "the pods do not run as root, to whom ports below 1024 belong",
            "Set a number from 1024 on, or 0 for no metrics",
        )
    if MASTER_PORT <= port <= MASTER_PORT + STORE_PORTS:
        last = MASTER_PORT + STORE_PORTS
        reader.problem(
            "metricsPort",
            port,
            f"the pods meet at the ports {MASTER_PORT} to {last}",
            "Set another port, such as 9464",
        )
    return port
