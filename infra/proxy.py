"""The proxy settings for everything that uses them; for pods as a ConfigMap and a Secret."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra.labels import content_hash, metadata
from infra.manifests.names import PROXY_CONFIG
from infra.settings import ProxySettings, Settings

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
    """The same for k3s' service, and the prefix that its script gives them there."""
    values = proxy_environment(proxy)
    if values and proxy.scope == "containerd":
        values["PROXY_PREFIX"] = CONTAINERD_PREFIX
    return values


def build_environment(proxy: ProxySettings) -> dict[str, pulumi.Input[str]]:
    """For the image's build on this machine, which takes proxies and authorities from here."""
    authorities: dict[str, pulumi.Input[str]] = {}
    if proxy.ca_file:
        authorities = {name: str(proxy.ca_file) for name in ("PIP_CERT", "SSL_CERT_FILE")}
    return {**proxy_environment(proxy), **authorities}


def proxy_config_map(settings: Settings) -> dict[str, Any]:
    """Every pod takes its environment from it, and from the Secret of the same name."""
    return {
        "metadata": metadata(PROXY_CONFIG, settings.namespace, "proxy", settings.stack),
        "data": plain_values(proxy_environment(settings.proxy)),
    }


def proxy_secret(settings: Settings) -> dict[str, Any]:
    """The addresses with passwords; empty without one, so that no old one stays in force."""
    data = secret_data(proxy_environment(settings.proxy))
    # not empty data: the API server does not give it back, and each `pulumi up` would see a change
    return {
        "metadata": metadata(PROXY_CONFIG, settings.namespace, "proxy", settings.stack),
        **({"data": data} if data else {}),
    }


def plain_values(variables: Mapping[str, pulumi.Input[str]]) -> dict[str, str]:
    """The variables that everybody may read."""
    return {name: value for name, value in variables.items() if isinstance(value, str)}


def secret_data(variables: Mapping[str, pulumi.Input[str]]) -> dict[str, pulumi.Output[str]]:
    """The others, as the `data` of a Secret."""
    # not string_data: the API server does not give it back, as above
    return {k: _base64(v) for k, v in variables.items() if not isinstance(v, str)}


def _base64(value: pulumi.Input[str]) -> pulumi.Output[str]:
    return pulumi.Output.from_input(value).apply(lambda text: b64encode(text.encode()).decode())


def ca_config_map(settings: Settings) -> dict[str, Any]:
    """The certificates that pods trust; its name carries the content."""
    bundle = settings.proxy.ca_bundle
    name = ca_config_map_name(bundle)
    return {
        "metadata": metadata(name, settings.namespace, "proxy", settings.stack),
        "immutable": True,
        "data": {"ca.crt": bundle},
    }


def ca_config_map_name(bundle: str) -> str:
    """Another bundle is another object, and so makes other pods."""
    return f"proxy-ca-{content_hash(bundle)}"


class ProxyConfig(pulumi.ComponentResource):
    """The ConfigMap and the Secret `proxy-config`, and the authorities if there are any."""

    config_map_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        settings: Settings,
        depends_on: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:ProxyConfig", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self, depends_on=depends_on)
        self.config_map = kubernetes.core.v1.ConfigMap(
            f"{name}-config-map", **proxy_config_map(settings), opts=child
        )
        self.secret = kubernetes.core.v1.Secret(
            f"{name}-secret", **proxy_secret(settings), opts=child
        )
        if settings.proxy.ca_bundle:
            kubernetes.core.v1.ConfigMap(f"{name}-ca", **ca_config_map(settings), opts=child)
        self.config_map_name = self.config_map.metadata["name"]
        self.register_outputs({"config_map_name": self.config_map_name})
