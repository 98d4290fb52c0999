"""NVIDIA's GPU Operator, by its Helm chart: installed, waited for, and taken away whole."""

import pulumi
import pulumi_kubernetes as kubernetes

from infra.bundle.needs import CHART
from infra.kubectl import Kubectl
from infra.labels import content_hash, labels
from infra.manifests.gpu_operator import (
    CA_CONFIG_MAP,
    NAMESPACE,
    chart_values,
    driver_proxy_secret,
)
from infra.settings import GpuOperatorSettings, Settings

RELEASE = "gpu-operator"
CHART_REPOSITORY = "https://helm.ngc.nvidia.com/nvidia"


class GpuOperator(pulumi.ComponentResource):
    """The release `gpu-operator`; its name is pinned, since its CRDs remember it.

    The namespace is a resource of its own, since Helm leaves one that it has made. What the
    operator writes to nodes, and CRDs that Helm keeps, go by a command that the release depends
    on: when all is destroyed, it runs after the operator is gone.
    """

    release_name: pulumi.Output[str | None]

    def __init__(
        self,
        name: str,
        operator: GpuOperatorSettings,
        settings: Settings,
        kubectl: Kubectl,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:GpuOperator", name, {"version": operator.version}, opts)
        self.namespace = kubernetes.core.v1.Namespace(
            f"{name}-namespace",
            metadata={
                "name": NAMESPACE,
                "labels": {
                    **labels("gpu-operator"),
                    "pod-security.kubernetes.io/enforce": "privileged",
                },
            },
            opts=pulumi.ResourceOptions(parent=self),
        )
        after: list[pulumi.Resource] = [self.namespace]
        if settings.proxy.ca_bundle and operator.driver:
            after.append(self._ca_config_map(name, settings.proxy.ca_bundle))
        secret = driver_proxy_secret(settings) if operator.driver else None
        if secret:
            proxy = pulumi.ResourceOptions(parent=self, depends_on=[self.namespace])
            after.append(kubernetes.core.v1.Secret(f"{name}-proxy", **secret, opts=proxy))
        after.append(self._cleanup(name, kubectl))
        limit = operator.timeout_seconds
        packed = settings.bundle.file(CHART) if settings.bundle else None
        self.release = kubernetes.helm.v3.Release(
            f"{name}-release",
            name=RELEASE,
            namespace=NAMESPACE,
            chart=str(packed) if packed else "gpu-operator",
            version=operator.version,
            repository_opts=None if packed else {"repo": CHART_REPOSITORY},
            timeout=limit,
            values=chart_values(operator, settings),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=after,
                custom_timeouts=pulumi.CustomTimeouts(
                    create=f"{limit}s", update=f"{limit}s", delete="10m"
                ),
            ),
        )
        self._watch(name, operator, settings, kubectl, after)
        self._wait(name, operator, settings, kubectl)
        self.release_name = self.release.name
        self.register_outputs({"release_name": self.release_name})

    def _ca_config_map(self, name: str, bundle: str) -> pulumi.Resource:
        return kubernetes.core.v1.ConfigMap(
            f"{name}-ca",
            metadata={"name": CA_CONFIG_MAP, "namespace": NAMESPACE},
            data={"ca.crt": bundle},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.namespace]),
        )

    def _cleanup(self, name: str, kubectl: Kubectl) -> pulumi.Resource:
        return kubectl.runner.script(
            f"{name}-cleanup",
            "gpu-operator-cleanup.sh",
            {"KUBECTL": kubectl.command, "NAMESPACE": NAMESPACE},
            pulumi.ResourceOptions(parent=self, depends_on=[self.namespace]),
            as_root=kubectl.as_root,
        )

    def _watch(
        self,
        name: str,
        operator: GpuOperatorSettings,
        settings: Settings,
        kubectl: Kubectl,
        after: list[pulumi.Resource],
    ) -> None:
        """Helm says nothing while it waits, and at last that time is up: this shows for what."""
        variables: dict[str, pulumi.Input[str]] = {
            **_common_variables(operator, settings, kubectl),
            "RELEASE": RELEASE,
            "VALUES": content_hash([operator.version, chart_values(operator, settings)]),
        }
        kubectl.runner.script(
            f"{name}-watch",
            "gpu-operator-await.sh",
            variables,
            _patient(self, after, operator),
            as_root=kubectl.as_root,
        )

    def _wait(
        self, name: str, operator: GpuOperatorSettings, settings: Settings, kubectl: Kubectl
    ) -> None:
        """The chart is done in a minute; driver, toolkit and device plugin take several more."""
        variables: dict[str, pulumi.Input[str]] = {
            **_common_variables(operator, settings, kubectl),
            "RELEASE_VERSION": self.release.status["version"].apply(str),
            "RELEASE_REVISION": self.release.status["revision"].apply(str),
        }
        kubectl.runner.script(
            f"{name}-await",
            "gpu-operator-await.sh",
            variables,
            _patient(self, [self.release], operator),
            as_root=kubectl.as_root,
        )


def _common_variables(
    operator: GpuOperatorSettings, settings: Settings, kubectl: Kubectl
) -> dict[str, pulumi.Input[str]]:
    compute = settings.compute
    return {
        "KUBECTL": kubectl.command,
        "NAMESPACE": NAMESPACE,
        "GPUS": str(compute.pods * compute.gpus_per_pod),
        "TIMEOUT_SECONDS": str(operator.timeout_seconds),
    }


def _patient(
    parent: pulumi.Resource, after: list[pulumi.Resource], operator: GpuOperatorSettings
) -> pulumi.ResourceOptions:
    """For a command that ends by itself when the operator's time is up."""
    limit = f"{operator.timeout_seconds + 60}s"
    timeouts = pulumi.CustomTimeouts(create=limit, update=limit)
    return pulumi.ResourceOptions(parent=parent, depends_on=after, custom_timeouts=timeouts)
