"""The namespace, and the handover between the stacks that share it."""

from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra.kubectl import Kubectl
from infra.labels import metadata
from infra.manifests.names import CLAIM
from infra.manifests.volume import volume_name
from infra.revisions import Revisions
from infra.settings import Settings


def namespace_manifest(settings: Settings) -> dict[str, Any]:
    """Its label names the stack in force."""
    return {"metadata": metadata(settings.namespace, None, "namespace", settings.stack)}


class Namespace(pulumi.ComponentResource):
    """The namespace belongs to the stack whose name its label holds: the last one that was up.

    When the label changes hands, or the workloads to come are others than those that run, a
    command ends the old ones first. It is part of this component, so that what depends on the
    namespace finds the place cleared.
    """

    namespace_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        settings: Settings,
        kubectl: Kubectl,
        names: Revisions,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:Namespace", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.namespace = kubernetes.core.v1.Namespace(
            f"{name}-namespace",
            **namespace_manifest(settings),
            opts=child,
        )
        variables: dict[str, pulumi.Input[str]] = {
            "KUBECTL": kubectl.command,
            "NAMESPACE": settings.namespace,
            # differs as soon as another stack was in force in between
            "NAMESPACE_VERSION": self.namespace.metadata["resource_version"],
            "STACK": settings.stack,
            "TRAINING_REVISION": names.training,
            "DATASET_REVISION": names.dataset,
            "VOLUME_NAME": volume_name(settings),
            "CLAIM_NAME": CLAIM,
            "GRACE_SECONDS": str(settings.limits.termination_grace_seconds),
        }
        self.handover = kubectl.runner.script(
            f"{name}-handover", "handover.sh", variables, child, as_root=kubectl.as_root
        )
        self.namespace_name = self.namespace.metadata["name"]
        self.register_outputs({"namespace_name": self.namespace_name})
