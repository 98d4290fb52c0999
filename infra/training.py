"""What both topologies share: the wait until all ranks have stepped."""

from dataclasses import dataclass

import pulumi

from infra.kubectl import Kubectl
from infra.runner import HostCommand
from infra.settings import Settings


@dataclass(frozen=True)
class Workload:
    """What the wait looks for."""

    kind: str
    name: str
    revision: str


class Training(pulumi.ComponentResource):
    """A training workload; each topology is a subclass that registers its own objects."""

    workload_name: pulumi.Output[str]
    """Name of the Job or StatefulSet."""

    def wait_until_stepped(
        self,
        name: str,
        settings: Settings,
        kubectl: Kubectl,
        workload: Workload,
        resource: pulumi.Resource,
        uid: pulumi.Output[str],
    ) -> HostCommand:
        """Register the command that ends when all ranks have stepped, or fails with the reason.

        It runs again for another workload only: the uid and the revision are among its variables.
        """
        limit = settings.limits.training_timeout_seconds
        variables: dict[str, pulumi.Input[str]] = {
            "KUBECTL": kubectl.command,
            "NAMESPACE": settings.namespace,
            "STACK": settings.stack,
            "KIND": workload.kind,
            "NAME": workload.name,
            "WORKLOAD_UID": uid,
            "REVISION": workload.revision,
            "PODS": str(settings.compute.pods),
            "TIMEOUT_SECONDS": str(limit),
        }
        timeout = f"{limit + 120}s"
        return kubectl.runner.script(
            f"{name}-await",
            "await-training.sh",
            variables,
            pulumi.ResourceOptions(
                parent=self,
                depends_on=[resource],
                custom_timeouts=pulumi.CustomTimeouts(create=timeout, update=timeout),
            ),
            as_root=kubectl.as_root,
        )
