"""How Prometheus gets at the runs: the port of their metrics, and whose Prometheus that is."""

from typing import Literal, cast

from infra.names import MASTER_PORT, STORE_PORTS
from infra.settings.reader import Reader
from infra.settings.secret import Secret

Monitoring = Literal["none", "existing", "install"]
_FIRST_PORT = 1024  # pods do not run as root, and need not be allowed a port below


def read_monitoring(reader: Reader) -> Monitoring:
    """Read whether the platform tells a Prometheus of its runs, or brings one."""
    return cast(Monitoring, reader.choice("monitoring", ("none", "existing", "install")))


def read_alert_webhook(reader: Reader, monitoring: Monitoring) -> Secret | None:
    """Read the address that Alertmanager tells of alerts; who knows it may post there."""
    key = "alertWebhook"
    reader.hide(key)
    address = reader.url(key, example="https://host/path")
    if address:
        reader.require_encrypted(key)
    if address and monitoring == "none":
        reason = "without Prometheus nothing warns of anything (monitoring: 'none')"
        hint = "Set monitoring to install or existing, or remove this address"
        reader.problem(key, address.text, reason, hint)
    return address


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
