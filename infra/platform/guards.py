"""What `pulumi destroy` does before it deletes anything: look whether it may, and clear the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi

from infra.dependencies import dependencies
from infra.kube_command import Connection, kube_command


@dataclass(frozen=True)
class GuardArgs:
    """The cluster, whether k3s goes with this stack, and the platform's queue if there is one."""

    connection: Connection
    k3s_is_ours: bool
    queue: Mapping[str, str] = field(default_factory=dict[str, str])


class DestroyGuard(pulumi.ComponentResource):
    """Refuses to destroy a platform on which runs of other stacks stand, or in whose queue others'
    work stands, and names them.

    It depends on everything else of the stack, so `pulumi destroy` comes to it first. When it
    refuses, nothing has been deleted.
    """

    guarded: pulumi.Output[str]
    """The namespace that is looked at."""

    def __init__(
        self, name: str, args: GuardArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:DestroyGuard", name, {}, opts)
        kube_command(
            f"{name}-look",
            "destroy-guard",
            args.connection,
            {
                "all_namespaces": args.k3s_is_ours,
                "k3s_is_ours": args.k3s_is_ours,
                **({"queue": dict(args.queue)} if args.queue else {}),
            },
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        self.guarded = pulumi.Output.from_input(args.connection.namespace)
        self.register_outputs({"guarded": self.guarded})


@dataclass(frozen=True)
class TaskPodsArgs:
    """The cluster, and whose pods are removed.

    Args:
        connection: the cluster.
        everyone: remove the pods of every stack, because the namespace goes.
    """

    connection: Connection
    everyone: bool


class TaskPods(pulumi.ComponentResource):
    """Pods that commands such as `./disttrain sample` have started.

    They end with their command. `pulumi destroy` removes what is left of them first, because even
    a finished pod keeps the claim from being deleted.
    """

    removed_from: pulumi.Output[str]
    """The namespace."""

    def __init__(
        self, name: str, args: TaskPodsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:TaskPods", name, {}, opts)
        kube_command(
            f"{name}-leftovers",
            "leftovers",
            args.connection,
            {"everyone": args.everyone},
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        self.removed_from = pulumi.Output.from_input(args.connection.namespace)
        self.register_outputs({"removedFrom": self.removed_from})
