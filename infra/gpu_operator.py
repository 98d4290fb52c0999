"""NVIDIA's GPU Operator, by its Helm chart."""

from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra.proxy import proxy_environment
from infra.settings import GpuOperatorSettings, Settings

CHART_REPOSITORY = "https://helm.ngc.nvidia.com/nvidia"
NAMESPACE = "gpu-operator"
K3S_CONTAINERD_SOCKET = "/run/k3s/containerd/containerd.sock"
TIMEOUT_SECONDS = 1200


class GpuOperator(pulumi.ComponentResource):
    """The release `gpu-operator`; its name is pinned, since its CRDs remember it."""

    release_name: pulumi.Output[str | None]

    def __init__(
        self,
        name: str,
        operator: GpuOperatorSettings,
        settings: Settings,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:GpuOperator", name, {"version": operator.version}, opts)
        self.release = kubernetes.helm.v3.Release(
            f"{name}-release",
            name="gpu-operator",
            namespace=NAMESPACE,
            create_namespace=True,
            chart="gpu-operator",
            version=operator.version,
            repository_opts={"repo": CHART_REPOSITORY},
            timeout=TIMEOUT_SECONDS,
            values=chart_values(operator, settings),
            opts=pulumi.ResourceOptions(
                parent=self,
                custom_timeouts=pulumi.CustomTimeouts(
                    create=f"{TIMEOUT_SECONDS}s", update=f"{TIMEOUT_SECONDS}s", delete="10m"
                ),
            ),
        )
        self.release_name = self.release.name
        self.register_outputs({"release_name": self.release_name})


def chart_values(operator: GpuOperatorSettings, settings: Settings) -> dict[str, Any]:
    """Values of the chart for its CDI regime (v25.10.1 and later).

    The toolkit is told k3s' socket; nothing else of containerd's configuration is named, and pods
    that ask for nvidia.com/gpu need no runtime class.
    """
    values: dict[str, Any] = {
        "driver": {"enabled": operator.driver},
        "toolkit": {"enabled": operator.toolkit},
        "operator": {"cleanupCRD": True},
    }
    proxies = proxy_environment(settings.proxy)
    if operator.driver and proxies:
        values["driver"]["env"] = [{"name": k, "value": v} for k, v in proxies.items()]
    k3s_socket = K3S_CONTAINERD_SOCKET if settings.cluster.kind == "k3s" else ""
    socket = settings.image.containerd_address or k3s_socket
    if operator.toolkit and socket:
        values["toolkit"]["env"] = [{"name": "CONTAINERD_SOCKET", "value": socket}]
    return values
