"""The proxy settings for everything that uses them; for pods as a ConfigMap and a Secret."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.dependencies import dependencies
from infra.labels import content_hash, metadata
from infra.names import CA_KEY, PROXY_CONFIG
from infra.objects import Manifest, kubernetes_object, secret_value
from infra.settings import ProxySettings

CONTAINERD_PREFIX = "CONTAINERD_"  # k3s hands variables so named to containerd alone


def proxy_environment(proxy: ProxySettings) -> dict[str, pulumi.Input[str]]:
    """The variables, in upper and lower case; none without a proxy.

    An address with a password in it is a secret output.
    """
    values: dict[str, pulumi.Input[str]] = {}
    for name, url in (("http_proxy", proxy.http), ("https_proxy", proxy.https)):
        if url is not None:
            values[name] = url.output if url.url_has_password else url.text
    if values:
        values["no_proxy"] = proxy.no_proxy
    return {**{name.upper(): value for name, value in values.items()}, **values}


def k3s_proxy_environment(proxy: ProxySettings) -> dict[str, pulumi.Input[str]]:
    """The variables for k3s' service, with the prefix that its script gives them there."""
    values = proxy_environment(proxy)
    if values and proxy.scope == "containerd":
        values["PROXY_PREFIX"] = CONTAINERD_PREFIX
    return values


def proxy_identity(proxy: ProxySettings) -> dict[str, Any]:
    """What of the proxies makes new pods when it changes: no password, and no further machine."""
    return {
        "http": proxy.http.url_without_password if proxy.http else "",
        "https": proxy.https.url_without_password if proxy.https else "",
        "no_proxy": proxy.no_proxy,
    }


@dataclass(frozen=True)
class ProxyConfigArgs:
    """The proxies, and where the objects lie and whose they are."""

    proxy: ProxySettings
    namespace: str
    stack: str
    owner: pulumi.Output[str]


def proxy_config_map(args: ProxyConfigArgs) -> dict[str, Any]:
    """Every pod takes its environment from it, and from the Secret of the same name."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(args, PROXY_CONFIG),
        "data": plain_values(proxy_environment(args.proxy.past_proxy(args.proxy.machines))),
    }


def proxy_secret(args: ProxyConfigArgs) -> dict[str, Any]:
    """The addresses with passwords; empty without one, so that no old one stays in force."""
    data = secret_data(proxy_environment(args.proxy))
    # The API server does not give empty data back, and each `pulumi up` would see a change.
    manifest: Manifest = {"apiVersion": "v1", "kind": "Secret"}
    manifest["metadata"] = _metadata(args, PROXY_CONFIG)
    return {**manifest, "data": data} if data else manifest


def _metadata(args: ProxyConfigArgs, name: str) -> dict[str, Any]:
    return metadata(name, args.namespace, "proxy", stack=args.stack, owner=args.owner)


def plain_values(variables: Mapping[str, pulumi.Input[str]]) -> dict[str, str]:
    """The variables that everybody may read."""
    return {name: value for name, value in variables.items() if isinstance(value, str)}


def secret_data(variables: Mapping[str, pulumi.Input[str]]) -> dict[str, pulumi.Output[str]]:
    """The others, as the `data` of a Secret."""
    # not string_data: the API server does not give it back, as above
    return {k: secret_value(v) for k, v in variables.items() if not isinstance(v, str)}


def ca_config_map(args: ProxyConfigArgs) -> dict[str, Any]:
    """The certificates that pods trust; its name carries the content."""
    bundle = args.proxy.ca_bundle
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(args, ca_config_map_name(bundle)),
        "immutable": True,
        "data": {CA_KEY: bundle},
    }


def ca_config_map_name(bundle: str) -> str:
    """Other certificates are another object, and so make other pods."""
    return f"proxy-ca-{content_hash(bundle)}"


class ProxyConfig(pulumi.ComponentResource):
    """The ConfigMap and the Secret `proxy-config`, and the certificates if there are any."""

    config_map_name: pulumi.Output[str]

    def __init__(
        self, name: str, args: ProxyConfigArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:ProxyConfig", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts))
        kubernetes_object(f"{name}-config-map", proxy_config_map(args), child)
        kubernetes_object(f"{name}-secret", proxy_secret(args), child)
        if args.proxy.ca_bundle:
            kubernetes_object(f"{name}-ca", ca_config_map(args), child)
        self.config_map_name = pulumi.Output.from_input(PROXY_CONFIG)
        self.register_outputs({"configMapName": self.config_map_name})
