"""Turns the proxy settings into variables, and for pods into a ConfigMap and a Secret."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.dependencies import child_options
from infra.labels import content_hash, metadata
from infra.names import CA_KEY, PROXY_CONFIG
from infra.objects import Manifest, kubernetes_object, secret_value
from infra.settings import ProxySettings

CONTAINERD_PREFIX = "CONTAINERD_"  # k3s gives variables with this prefix only to containerd.


def proxy_environment(proxy: ProxySettings) -> dict[str, pulumi.Input[str]]:
    """The proxy variables, in upper and in lower case; none without a proxy.

    If an address contains a password, its value is a secret output.
    """
    values: dict[str, pulumi.Input[str]] = {}
    for name, url in (("http_proxy", proxy.http), ("https_proxy", proxy.https)):
        if url is not None:
            values[name] = url.output if url.url_has_password else url.text
    if values:
        values["no_proxy"] = proxy.no_proxy
    return {**{name.upper(): value for name, value in values.items()}, **values}


def k3s_proxy_environment(proxy: ProxySettings) -> dict[str, pulumi.Input[str]]:
    """The proxy variables for k3s' service.

    PROXY_PREFIX is the prefix that the script puts in front of their names.
    """
    values = proxy_environment(proxy)
    if values and proxy.scope == "containerd":
        values["PROXY_PREFIX"] = CONTAINERD_PREFIX
    return values


def proxy_identity(proxy: ProxySettings) -> dict[str, Any]:
    """The parts of the proxy settings that lead to new pods when they change.

    The passwords and the addresses of further machines are not among them.
    """
    return {
        "http": proxy.http.url_without_password if proxy.http else "",
        "https": proxy.https.url_without_password if proxy.https else "",
        "no_proxy": proxy.no_proxy,
    }


@dataclass(frozen=True)
class ProxyConfigArgs:
    """The proxies, the namespace of the objects, and who owns them."""

    proxy: ProxySettings
    namespace: str
    stack: str
    owner: pulumi.Output[str]


def proxy_config_map(args: ProxyConfigArgs) -> dict[str, Any]:
    """The ConfigMap with the variables that hold no password.

    Every pod gets its environment from this ConfigMap and from the Secret with the same name.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(args, PROXY_CONFIG),
        "data": plain_values(proxy_environment(args.proxy.past_proxy(args.proxy.machines))),
    }


def proxy_secret(args: ProxyConfigArgs) -> dict[str, Any]:
    """The Secret with the variables that hold a password.

    It is also made if no variable does. So an old password does not stay in use.
    """
    data = secret_data(proxy_environment(args.proxy))
    # The API server does not return an empty `data`, so each `pulumi up` would see a change.
    manifest: Manifest = {"apiVersion": "v1", "kind": "Secret"}
    manifest["metadata"] = _metadata(args, PROXY_CONFIG)
    return {**manifest, "data": data} if data else manifest


def _metadata(args: ProxyConfigArgs, name: str) -> dict[str, Any]:
    return metadata(name, args.namespace, "proxy", stack=args.stack, owner=args.owner)


def plain_values(variables: Mapping[str, pulumi.Input[str]]) -> dict[str, str]:
    """The variables that everybody may read, because they hold no password."""
    return {name: value for name, value in variables.items() if isinstance(value, str)}


def secret_data(variables: Mapping[str, pulumi.Input[str]]) -> dict[str, pulumi.Output[str]]:
    """The variables that hold a password, in the form of the `data` of a Secret."""
    # `stringData` is not used: the API server does not return it, so each `pulumi up` would see a
    # change.
    return {k: secret_value(v) for k, v in variables.items() if not isinstance(v, str)}


def ca_config_map(args: ProxyConfigArgs) -> dict[str, Any]:
    """The ConfigMap with the certificates that pods trust."""
    bundle = args.proxy.ca_bundle
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(args, ca_config_map_name(bundle)),
        "immutable": True,
        "data": {CA_KEY: bundle},
    }


def ca_config_map_name(bundle: str) -> str:
    """Name of the ConfigMap, with a hash of the certificates.

    Other certificates are another object, so pods are made anew.
    """
    return f"proxy-ca-{content_hash(bundle)}"


class ProxyConfig(pulumi.ComponentResource):
    """The ConfigMap and the Secret `proxy-config`, and the certificates, if there are any."""

    def __init__(
        self, name: str, args: ProxyConfigArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:ProxyConfig", name, {}, opts)
        child = child_options(self, opts)
        kubernetes_object(f"{name}-config-map", proxy_config_map(args), child)
        kubernetes_object(f"{name}-secret", proxy_secret(args), child)
        if args.proxy.ca_bundle:
            kubernetes_object(f"{name}-ca", ca_config_map(args), child)
        self.register_outputs({})
