"""Reads the proxies, the addresses reached without a proxy, and the authorities to trust."""

import ssl
from dataclasses import dataclass, replace
from typing import Literal, cast

from infra.image.authorities import trust
from infra.no_proxy import (
    bypasses_proxy,
    is_entry,
    missing_entries,
    no_proxy,
    required_entries,
    split_no_proxy,
)
from infra.settings.cluster import ClusterSettings, lacks_address
from infra.settings.local_path import local_path, why_unreadable
from infra.settings.nodes import NodeSettings
from infra.settings.reader import Reader
from infra.settings.secret import Secret


@dataclass(frozen=True)
class ProxySettings:
    """The proxies, and the computed NO_PROXY. If `http` and `https` are None, there is no proxy.

    `scope` says which parts of k3s use the proxies. `ca_bundle` is the text (PEM) of certificates
    of authorities to trust. `machines` are the addresses of further machines that `no_proxy` does
    not cover. They are not in `no_proxy`, so that the pods do not change when a machine is added.
    """

    http: Secret | None
    https: Secret | None
    no_proxy: str
    scope: Literal["all", "containerd"]
    ca_bundle: str
    machines: tuple[str, ...] = ()

    def past_proxy(self, machines: tuple[str, ...]) -> "ProxySettings":
        """Return these settings with the addresses in `machines` added to NO_PROXY.

        Addresses that NO_PROXY already covers are not added.
        """
        more = [address for address in machines if address in self.machines]
        return replace(self, no_proxy=",".join([self.no_proxy, *more]))


def read_proxy(
    reader: Reader, cluster: ClusterSettings, nodes: tuple[NodeSettings, ...]
) -> ProxySettings:
    """Read the proxies and compute NO_PROXY from the addresses of the cluster."""
    http, https = reader.proxy_url("httpProxy"), reader.proxy_url("httpsProxy")
    more, override = _exceptions(reader, "noProxy"), _exceptions(reader, "noProxyOverride")
    scope = cast(Literal["all", "containerd"], reader.choice("proxyScope", ("all", "containerd")))
    ca_bundle = read_ca_bundle(reader)
    if http is None and https is None:
        return ProxySettings(None, None, "", scope, ca_bundle)
    if lacks_address(reader, cluster):
        reader.problem(
            "nodeAddress",
            "",
            "a proxy is set, and the node must be reached without it (NO_PROXY)",
            "Set the node's address, as the pods reach it",
        )
    address = cluster.node_address if reader.are_right("nodeAddress") else ""
    required = required_entries(address, cluster.pod_cidr, cluster.service_cidr)
    exceptions = override or split_no_proxy(no_proxy(required, more))
    addresses = dict.fromkeys(node.ssh.host for node in nodes)
    machines = tuple(each for each in addresses if not bypasses_proxy(each, exceptions))
    missing = (*missing_entries(override, required), *machines)
    if override and missing:
        reader.problem(
            "noProxyOverride",
            ",".join(override),
            f"what must be reached without a proxy is missing: {','.join(missing)}",
            "Add these, or use noProxy, which adds to the computed list",
        )
    return ProxySettings(http, https, ",".join(exceptions), scope, ca_bundle, machines)


def _exceptions(reader: Reader, key: str) -> tuple[str, ...]:
    """Read a list of NO_PROXY. An entry that no program understands would count for nothing."""
    entries = split_no_proxy(reader.text(key))
    for entry in entries:
        if not is_entry(entry):
            hint = "Separate names, addresses and networks by commas: corp.example,10.1.0.0/16"
            reader.problem(key, entry, "it is neither a name nor an address nor a network", hint)
    return entries


def read_ca_bundle(reader: Reader) -> str:
    """Return the text (PEM) of the file `caBundle`; empty if it is not set or cannot be used."""
    text = reader.text("caBundle")
    if not text:
        return ""
    path = local_path(text)
    try:
        bundle = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        hint = "Set the path of a file on this machine"
        reader.problem("caBundle", text, f"it cannot be read ({why_unreadable(error)})", hint)
        return ""
    hint = "Set a file with certificates (PEM) alone"
    if "PRIVATE KEY" in bundle:
        reason = "it holds a private key, and its text goes to the node and into every pod"
        reader.problem("caBundle", text, reason, hint)
        return ""
    if "-----BEGIN CERTIFICATE-----" not in bundle:
        reader.problem("caBundle", text, "it holds no certificate", hint)
        return ""
    try:
        trust(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), bundle)
    except ssl.SSLError:
        hint = "Copy the file again from where the certificates were made"
        reader.problem("caBundle", text, "a certificate in it is damaged", hint)
        return ""
    return bundle
