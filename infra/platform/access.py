"""The way of a run to a cluster that belongs to another stack's platform."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

from infra.dependencies import dependencies
from infra.platform.cluster_generation import ClusterGeneration


@dataclass(frozen=True)
class AccessArgs:
    """The way to the cluster.

    Args:
        kubeconfig: its content or its path.
        context: context of the kubeconfig; empty: its current one.
        cluster_identifier: names the cluster to the Kubernetes provider.
        generation: another text when the platform's k3s has become another cluster.
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
        self.provider = kubernetes.Provider(
            f"{name}-provider",
            kubeconfig=args.kubeconfig,
            context=args.context or None,
            # A renewed certificate in the kubeconfig must not look like another cluster, since
            # that would replace everything.
            cluster_identifier=args.cluster_identifier,
            opts=pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        # The mark comes after the provider, so that objects which were made in a former cluster are
        # looked for in the present one.
        self._generation = ClusterGeneration(
            f"{name}-generation",
            [args.generation],
            pulumi.ResourceOptions(parent=self, depends_on=[self.provider]),
        )
        self.kubeconfig = args.kubeconfig
        self.register_outputs({"kubeconfig": self.kubeconfig})

    @property
    def options(self) -> pulumi.ResourceOptions:
        """Options of components whose objects lie in the cluster."""
        return pulumi.ResourceOptions.merge(
            pulumi.ResourceOptions(providers=[self.provider]), self._generation.options
        )
