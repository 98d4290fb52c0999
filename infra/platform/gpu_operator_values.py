"""Computes the values of the GPU Operator's chart that differ from the chart's defaults."""

import re
from collections.abc import Mapping
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
# The chart gives this toleration to the workers of the node feature discovery. Helm replaces a list
# as a whole, so a list of our own has to repeat it.
CONTROL_PLANE_TOLERATION = {
    "key": "node-role.kubernetes.io/control-plane",
    "operator": "Exists",
    "effect": "NoSchedule",
}


def chart_values(operator: GpuOperatorSettings, settings: PlatformSettings) -> dict[str, Any]:
    """The values that differ from the chart's defaults: the computed ones and the user's own.

    The settings are only valid if no value is in both (infra/settings/gpu_values.py).
    """
    return _joined(computed_values(operator, settings), operator.values)


def _joined(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    joined = {**values, **more}
    for key in values.keys() & more.keys():
        joined[key] = _joined(values[key], more[key])
    return joined


def computed_values(operator: GpuOperatorSettings, settings: PlatformSettings) -> dict[str, Any]:
    """The values that follow from the other settings.

    They depend on the regime, which says how containers get the GPUs:

    cdi: the toolkit is told the path of k3s' containerd socket, and nothing else about containerd's
        configuration.
    nri: the toolkit is a plugin of containerd (NRI), so containerd is not restarted.
    legacy: charts before v25.10.1 edit the configuration that k3s generates, and make NVIDIA's
        runtime the default one.
    preinstalled: k3s finds the host's toolkit when it starts, and pods name its runtime class.
    """
    values: dict[str, Any] = {
        "driver": {"enabled": operator.driver},
        "toolkit": {"enabled": operator.toolkit},
        "dcgmExporter": {"enabled": operator.dcgm_exporter},
    }
    chart = chart_version(operator.version)
    assert chart is not None
    discovery: dict[str, Any] = {}
    if chart >= FIRST_CDI_CHART:
        # The chart's own clean-up would need an image. gpu-operator-cleanup.sh removes the same.
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
        # A label of the nodes says which profile it is (lib/mig.sh). It cannot be the default of
        # the MIG manager, because the definition of the ClusterPolicy allows only all-disabled.
        values["mig"] = {"strategy": "single"}
    return values


def _tolerations_of_nodes(settings: PlatformSettings) -> list[dict[str, str]]:
    """Tolerations for the taints of further machines.

    Without them, the taints would also keep away the pods that make the GPUs usable there.
    """
    taints = [taint for node in settings.nodes for taint in node.taints]
    keys = [re.split("[=:]", each)[0] for each in taints if not each.endswith(":PreferNoSchedule")]
    return [{"key": key, "operator": "Exists"} for key in dict.fromkeys(keys)]


def mig_config(profile: str) -> str:
    """The name of the MIG manager's configuration that divides all GPUs by this profile.

    It is empty if the GPUs are not divided.
    """
    return f"all-{profile}" if profile else ""


def device_plugin_values(time_slices: int) -> dict[str, Any]:
    """Values for a ConfigMap that the chart makes, with a hash of the content in its name.

    The operator does not watch the content. Another name makes it restart the device plugin.
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
    """Values of the driver for a host behind a proxy.

    Only the driver's container downloads packages, so only it needs them. containerd pulls the
    images.
    """
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
    """The Secret with the proxies whose addresses hold a password; None: there is no password.

    The operator does not watch the Secret. If a proxy's address changes, the Secret gets another
    name, and the operator starts the driver's pod anew. If only a password changes, the name stays
    the same: a restart of the driver would end the programs that run on the GPUs.
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
