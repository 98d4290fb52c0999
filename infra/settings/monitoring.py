"""How Prometheus gets at the runs: the port of their metrics, and whose Prometheus that is."""

from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import urlsplit

from infra.names import MASTER_PORT, STORE_PORTS
from infra.no_proxy import bypasses_proxy, split_no_proxy
from infra.settings.proxy import ProxySettings
from infra.settings.reader import Reader
from infra.settings.secret import Secret

Monitoring = Literal["none", "existing", "install"]
_FIRST_PORT = 1024  # pods do not run as root, and need not be allowed a port below


def read_monitoring(reader: Reader) -> Monitoring:
    """Read whether the platform tells a Prometheus of its runs, or brings one."""
    return cast(Monitoring, reader.choice("monitoring", ("none", "existing", "install")))


@dataclass(frozen=True)
class AlertWebhook:
    """Who is told of alerts.

    Args:
        address: who knows it may post there.
        proxy: address of the proxy on the way to it; empty: none.
    """

    address: Secret
    proxy: str


def read_alert_webhook(
    reader: Reader, monitoring: Monitoring, proxies: ProxySettings
) -> AlertWebhook | None:
    """Read who is told of alerts, and find the way there."""
    key = "alertWebhook"
    reader.hide(key)
    address = reader.url(key, example="https://host/path")
    if address is None:
        return None
    reader.require_encrypted(key)
    if monitoring == "none":
        reason = "without Prometheus nothing warns of anything (monitoring: 'none')"
        hint = "Set monitoring to install or existing, or remove this address"
        reader.problem(key, address.text, reason, hint)
    parts = urlsplit(address.text)
    name = "httpsProxy" if parts.scheme == "https" else "httpProxy"
    proxy = proxies.https if parts.scheme == "https" else proxies.http
    if proxy is None or bypasses_proxy(parts.hostname or "", split_no_proxy(proxies.no_proxy)):
        return AlertWebhook(address, "")
    if proxy.url_has_password:
        reason = f"{name} is on the way, and Alertmanager would hold its password in plain text"
        hint = "Set a proxy without a password, or add the address's host to noProxy"
        reader.problem(key, address.text, reason, hint)
    return AlertWebhook(address, proxy.url_without_password)


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
