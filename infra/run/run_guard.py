"""What `pulumi destroy` of a run on another stack's platform does first: it asks its cluster."""

from dataclasses import dataclass

import pulumi

from infra.dependencies import child_options
from infra.kube_command import Connection, kube_command


@dataclass(frozen=True)
class RunGuardArgs:
    """What the guard asks.

    Args:
        connection: how the cluster is reached.
        platform_stack: the stack that owns the platform, for the message.
    """

    connection: Connection
    platform_stack: str


class RunGuard(pulumi.ComponentResource):
    """Refuses to destroy a run whose cluster cannot be reached, and says the way on.

    The guard depends on everything else in the stack, so `pulumi destroy` deletes it first. When it
    refuses, nothing has been deleted. `pulumi up` never deletes it, because another context or
    kubeconfig only changes its command.
    """

    def __init__(
        self, name: str, args: RunGuardArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:RunGuard", name, {}, opts)
        kube_command(
            f"{name}-look",
            "run-guard",
            args.connection,
            {"platform_stack": args.platform_stack},
            child_options(self, opts),
        )
        self.register_outputs({})
