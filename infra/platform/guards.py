"""What `pulumi destroy` does before it deletes anything: look whether it may, and clear the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from infra.dependencies import dependencies
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.kube_command import Connection, kube_command


@dataclass(frozen=True)
class GuardArgs:
    """What is looked at.

    Args:
        connection: the cluster.
        k3s_is_ours: whether k3s goes with this stack, with all that is in it.
        queue: names of the platform's queue; empty: it has none.
        controllers: those that the platform has installed, as fields of a job.
        own_namespaces: further namespaces that go with the platform.
    """

    connection: Connection
    k3s_is_ours: bool
    queue: Mapping[str, str] = field(default_factory=dict[str, str])
    controllers: Sequence[Mapping[str, Any]] = ()
    own_namespaces: Sequence[OwnNamespace] = ()


class DestroyGuard(pulumi.ComponentResource):
    """Refuses to destroy a platform on which runs of other stacks stand, or in whose queue others'
    work stands, or whose controllers others use, or in whose namespaces others have objects, and
    names them.

    It depends on everything else of the stack, so `pulumi destroy` comes to it first. When it
    refuses, nothing has been deleted.
    """

    guarded: pulumi.Output[str]
    """The namespace that is looked at."""

    def __init__(
        self, name: str, args: GuardArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:DestroyGuard", name, {}, opts)
        # with our k3s all goes at once
        controllers = [] if args.k3s_is_ours else list(args.controllers)
        places = [] if args.k3s_is_ours else [each.fields() for each in args.own_namespaces]
        kube_command(
            f"{name}-look",
            "destroy-guard",
            args.connection,
            {
                "all_namespaces": args.k3s_is_ours,
                "k3s_is_ours": args.k3s_is_ours,
                **({"queue": dict(args.queue)} if args.queue else {}),
                **({"controllers": controllers} if controllers else {}),
                **({"own_namespaces": places} if places else {}),
            },
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        self.guarded = pulumi.Output.from_input(args.connection.namespace)
        self.register_outputs({"guarded": self.guarded})


LONGEST_SAVE_SECONDS = 86400
"""For the engine. The program knows how long the pods may save, and ends by itself."""


@dataclass(frozen=True)
class TaskPodsArgs:
    """The cluster, and whose pods are removed.

    Args:
        connection: the cluster.
        everyone: remove the pods of every stack, because the claim and the namespace go.
        lost_nodes_are_replaced: whether `lostNodes` gives up the pods of a lost machine; of a
            platform of another stack the program finds that out.
    """

    connection: Connection
    everyone: bool
    lost_nodes_are_replaced: bool = False


class TaskPods(pulumi.ComponentResource):
    """Pods that commands such as `./disttrain sample` have started.

    They end with their command. `pulumi destroy` removes what is left of them first, because even
    a finished pod keeps the claim from being deleted. It also waits for the pods of the training,
    which have been asked to end by then, and names a lost machine that keeps one.
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
            {
                "everyone": args.everyone,
                **({"lost_nodes_are_replaced": True} if args.lost_nodes_are_replaced else {}),
            },
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
            limit_seconds=LONGEST_SAVE_SECONDS,
        )
        self.removed_from = pulumi.Output.from_input(args.connection.namespace)
        self.register_outputs({"removedFrom": self.removed_from})
