"""The proxy settings as one ConfigMap that every pod takes its environment from."""

from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra.labels import metadata
from infra.manifests.names import PROXY_CONFIG
from infra.settings import ProxySettings, Settings


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


def proxy_config_map(settings: Settings) -> dict[str, Any]:
    """Every pod takes its environment from it."""
    return {
        "metadata": metadata(PROXY_CONFIG, settings.namespace, "proxy", settings.stack),
        "data": proxy_environment(settings.proxy),
    }


class ProxyConfig(pulumi.ComponentResource):
    """The ConfigMap `proxy-config`."""

    config_map_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        settings: Settings,
        depends_on: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:ProxyConfig", name, {}, opts)
        self.config_map = kubernetes.core.v1.ConfigMap(
            f"{name}-config-map",
            **proxy_config_map(settings),
            opts=pulumi.ResourceOptions(parent=self, depends_on=depends_on),
        )
        self.config_map_name = self.config_map.metadata["name"]
        self.register_outputs({"config_map_name": self.config_map_name})
