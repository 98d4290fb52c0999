"""Reads the settings of monitoring: whose Prometheus it is, its storage, and the metrics' port."""

from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import urlsplit

from infra.names import MASTER_PORT, STORE_PORTS
from infra.no_proxy import bypasses_proxy, split_no_proxy
from infra.settings.proxy import ProxySettings
from infra.settings.reader import Reader
from infra.settings.secret import Secret

Monitoring = Literal["none", "existing", "install"]
_FIRST_PORT = 1024  # Pods do not run as root, and may not be allowed to open a lower port.


def read_monitoring(reader: Reader) -> Monitoring:
    """Read whether there is no Prometheus, one that exists, or one that the platform installs."""
    return cast(Monitoring, reader.choice("monitoring", ("none", "existing", "install")))


@dataclass(frozen=True)
class AlertWebhook:
    """The webhook to which Alertmanager sends alerts.

    Args:
        address: address of the webhook, a secret: everybody who knows it may post there.
        proxy: address of the proxy on the way to it; empty: no proxy.
    """

    address: Secret
    proxy: str


def read_alert_webhook(
    reader: Reader, monitoring: Monitoring, proxies: ProxySettings
) -> AlertWebhook | None:
    """Read the webhook for alerts, and find out whether a proxy is on the way to it."""
    key = "alertWebhook"
    reader.hide(key)
    address = reader.url(key, example="https://host/path")
    if address is None:
        return None
    reader.require_encrypted(key)
    if monitoring == "none" and reader.are_right("monitoring"):
        reason = "without Prometheus nothing warns of anything (monitoring: 'none')"
        hint = "Set monitoring to install or existing, or remove this address"
        reader.problem(key, address.text, reason, hint)
    parts = urlsplit(address.text)
    name = "httpsProxy" if parts.scheme == "https" else "httpProxy"
    proxy = proxies.https if parts.scheme == "https" else proxies.http
    if proxy is None or bypasses_proxy(parts.hostname or "", split_no_proxy(proxies.no_proxy)):
        return AlertWebhook(address, "")
    if proxy.url_has_password:
        reason = (
            f"it is reached through {name}, and Alertmanager would store its password in plain text"
        )
        hint = "Set a proxy without a password, or add the address's host to noProxy"
        reader.problem(key, address.text, reason, hint)
    return AlertWebhook(address, proxy.url_without_password)


@dataclass(frozen=True)
class NumbersClaim:
    """The claim in which Prometheus keeps its numbers, so that they outlive its pod.

    Args:
        gib: size of the claim in GiB.
        class_name: name of the storage class that provides the volume.
    """

    gib: int
    class_name: str


def read_numbers_claim(reader: Reader, monitoring: Monitoring) -> NumbersClaim | None:
    """Read the claim for Prometheus' numbers; None if they are lost with Prometheus' pod."""
    size_key, class_key = "monitoringStorageGib", "monitoringStorageClass"
    gib = reader.integer(size_key, at_least=0, at_most=65536)
    class_name = reader.text(
        class_key,
        pattern=r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?",
        form="the name of a storage class",
        example="local-path",
    )
    if not (gib or class_name) or not reader.are_right("monitoring", size_key, class_key):
        return None
    if monitoring != "install":
        key, value = (size_key, gib) if gib else (class_key, class_name)
        reason = f"monitoring is {monitoring!r}, so this platform brings no Prometheus to have it"
        reader.problem(key, value, reason, "Set monitoring to install, or remove this value")
    elif not gib:
        reason = f"{class_key} is set, and a claim needs a size"
        hint = f"Set a number of GiB, such as 20, or remove {class_key}"
        reader.problem(size_key, gib, reason, hint)
    elif not class_name:
        reason = f"{size_key} is set, and a claim needs a class"
        hint = f"Set one that `kubectl get storageclass` lists, or remove {size_key}"
        reader.problem(class_key, class_name, reason, hint)
    return NumbersClaim(gib, class_name)


def read_metrics_port(reader: Reader) -> int:
    """Read the port at which each training pod offers its metrics; 0 for no metrics."""
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
