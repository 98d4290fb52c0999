"""Lets a run reach the cluster of a platform that another stack owns."""

from dataclasses import dataclass

import pulumi

from infra.dependencies import child_options
from infra.platform.cluster_generation import ClusterGeneration
from infra.platform.provider import kubernetes_provider


@dataclass(frozen=True)
class AccessArgs:
    """How the cluster is reached.

    Args:
        kubeconfig: the content of the kubeconfig, or its path.
        context: the context in the kubeconfig; empty: the current one.
        cluster_identifier: names the cluster to the Kubernetes provider.
        generation: a text that changes when the platform's k3s has become another cluster.
    """

    kubeconfig: pulumi.Output[str]
    context: str
    cluster_identifier: str
    generation: str


class ClusterAccess(pulumi.ComponentResource):
    """The Kubernetes provider of a stack that has no platform of its own."""

    kubeconfig: pulumi.Output[str]

    def __init__(
        self, name: str, args: AccessArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:ClusterAccess", name, {}, opts)
        self.provider = kubernetes_provider(
            f"{name}-provider",
            args.kubeconfig,
            args.context,
            args.cluster_identifier,
            child_options(self, opts),
        )
        # The generation command depends on the provider. So the provider already leads to the
        # present cluster when the engine deletes objects that were made in a former cluster, and
        # looks for them in the present one.
        self._generation = ClusterGeneration(
            f"{name}-generation",
            [args.generation],
            pulumi.ResourceOptions(parent=self, depends_on=[self.provider]),
        )
        self.kubeconfig = args.kubeconfig
        self.register_outputs({"kubeconfig": self.kubeconfig})

    @property
    def options(self) -> pulumi.ResourceOptions:
        """Options for components whose objects are in the cluster."""
        return pulumi.ResourceOptions.merge(
            pulumi.ResourceOptions(providers=[self.provider]), self._generation.options
        )
