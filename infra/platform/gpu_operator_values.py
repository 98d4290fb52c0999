"""Values of the GPU Operator's chart. Pure; the chart's own defaults are left as they are."""

import re
from typing import Any

import yaml

from infra.labels import content_hash, labels
from infra.names import GPU_TOLERATION
from infra.platform.proxy import plain_values, proxy_environment, secret_data
from infra.settings import GpuOperatorSettings, PlatformSettings
from infra.settings.gpu_regime import FIRST_CDI_CHART, chart_version
from infra.settings.gpu_sharing import device_plugin_config

K3S_CONTAINERD_SOCKET = "/run/k3s/containerd/containerd.sock"
K3S_CONTAINERD_CONFIG = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
CA_CONFIG_MAP = "disttrain-ca"
NAMESPACE = "gpu-operator"
# Of the workers of the node feature discovery, by the chart; Helm replaces a list as a whole.
CONTROL_PLANE_TOLERATION = {
    "key": "node-role.kubernetes.io/control-plane",
    "operator": "Exists",
    "effect": "NoSchedule",
}


def chart_values(operator: GpuOperatorSettings, settings: PlatformSettings) -> dict[str, Any]:
    """What differs from the chart's defaults.

    cdi: the toolkit is told k3s' socket and nothing else of containerd's configuration.
    nri: the same by containerd's plugin interface, without a restart of containerd.
    legacy: charts before v25.10.1 edit k3s' generated configuration and become the default.
    preinstalled: the host's toolkit, which k3s finds at its start; pods name its runtime class.
    """
    values: dict[str, Any] = {
        "driver": {"enabled": operator.driver},
        "toolkit": {"enabled": operator.toolkit},
        "dcgmExporter": {"enabled": operator.dcgm_exporter},
    }
    chart = chart_version(operator.version)
    assert chart is not None
    discovery: dict[str, Any] = {}
    if chart >= FIRST_CDI_CHART:  # it would need an image to remove what our clean-up removes
        discovery["postDeleteCleanup"] = False
    if tainted := _tolerations_of_nodes(settings):
        values["daemonsets"] = {"tolerations": [GPU_TOLERATION, *tainted]}
        all_of_worker = [CONTROL_PLANE_TOLERATION, GPU_TOLERATION, *tainted]
        discovery["worker"] = {"tolerations": all_of_worker}
    if discovery:
        values["node-feature-discovery"] = discovery
    if operator.driver:
        values["driver"] |= _driver_on_a_proxied_host(settings)
    toolkit_env = _toolkit_env(operator, settings)
    if toolkit_env:
        values["toolkit"]["env"] = [{"name": k, "value": v} for k, v in toolkit_env.items()]
    if operator.regime == "nri":
        values["cdi"] = {"enabled": True, "nriPluginEnabled": True}
    if operator.regime in ("legacy", "preinstalled"):
        values["cdi"] = {"enabled": False}
    if operator.sharing.time_slices > 1:
        values["devicePlugin"] = {"config": device_plugin_values(operator.sharing.time_slices)}
    if operator.sharing.mig_profile:
        # Which profile it is says a label of the nodes (lib/mig.sh): as the default of the MIG
        # manager, the definition of the ClusterPolicy allows none but all-disabled.
        values["mig"] = {"strategy": "single"}
    return values


def _tolerations_of_nodes(settings: PlatformSettings) -> list[dict[str, str]]:
    """The taints of further machines keep other pods away, and not what makes GPUs usable there."""
    taints = [taint for node in settings.nodes for taint in node.taints]
    keys = [re.split("[=:]", each)[0] for each in taints if not each.endswith(":PreferNoSchedule")]
    return [{"key": key, "operator": "Exists"} for key in dict.fromkeys(keys)]


def mig_config(profile: str) -> str:
    """The name of the MIG manager's configuration that cuts all GPUs in this way; empty: none."""
    return f"all-{profile}" if profile else ""


def device_plugin_values(time_slices: int) -> dict[str, Any]:
    """A ConfigMap made by the chart; its name carries its content.

    The operator does not watch the content: another name makes it restart the device plugin.
    """
    config = device_plugin_config(time_slices)
    return {
        "create": True,
        "name": f"disttrain-time-slices-{content_hash(config)}",
        "default": "shared",
        "data": {"shared": yaml.safe_dump(config, sort_keys=False)},
    }


def _toolkit_env(operator: GpuOperatorSettings, settings: PlatformSettings) -> dict[str, str]:
    on_k3s = settings.cluster.kind == "k3s"
    socket = settings.image.containerd_address or (K3S_CONTAINERD_SOCKET if on_k3s else "")
    if operator.regime == "cdi" and socket:
        return {"CONTAINERD_SOCKET": socket}
    if operator.regime == "legacy" and on_k3s:
        return {
            "CONTAINERD_CONFIG": K3S_CONTAINERD_CONFIG,
            "CONTAINERD_SOCKET": socket,
            "CONTAINERD_RUNTIME_CLASS": "nvidia",
            "CONTAINERD_SET_AS_DEFAULT": "true",
        }
    return {}


def _driver_on_a_proxied_host(settings: PlatformSettings) -> dict[str, Any]:
    """The driver container alone fetches packages; images go through containerd."""
    values: dict[str, Any] = {}
    plain = plain_values(proxy_environment(settings.proxy))
    if plain:
        values["env"] = [{"name": name, "value": value} for name, value in plain.items()]
    secret = driver_proxy_secret(settings)
    if secret:
        values["secretEnv"] = secret["metadata"]["name"]
    if settings.proxy.ca_bundle:
        values["certConfig"] = {"name": CA_CONFIG_MAP}
    return values


def driver_proxy_secret(settings: PlatformSettings) -> dict[str, Any] | None:
    """What the driver's container gets of the proxy that nobody may read; None: nothing.

    The operator does not watch it: another address is another name, and so another driver pod.
    Another password alone does not restart the driver, which would end what runs on the GPUs.
    """
    data = secret_data(proxy_environment(settings.proxy))
    if not data:
        return None
    proxies = (settings.proxy.http, settings.proxy.https)
    addresses = [proxy and proxy.url_without_password for proxy in proxies]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"disttrain-proxy-{content_hash(addresses)}",
            "namespace": NAMESPACE,
            "labels": labels("gpu-operator"),
        },
        "data": data,
    }
