"""What `pulumi destroy` does first: it checks whether it may delete, and removes leftover pods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.dependencies import child_options
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.kube_command import Connection, kube_command


@dataclass(frozen=True)
class GuardArgs:
    """What the guard checks.

    Args:
        connection: how the cluster is reached.
        k3s_is_ours: whether `pulumi destroy` removes k3s, with everything in it.
        queue: names of the objects of the platform's queue; empty if it has none.
        controllers: the controllers that the platform has installed, each as a field of a job.
        own_namespaces: the namespaces that `pulumi destroy` deletes with the platform, without
            those of the controllers.
    """

    connection: Connection
    k3s_is_ours: bool
    queue: Mapping[str, str]
    controllers: Sequence[Mapping[str, Any]]
    own_namespaces: Sequence[OwnNamespace]


class DestroyGuard(pulumi.ComponentResource):
    """Refuses to destroy a platform that others use, and names what they have there.

    That is the case if runs of other stacks use the platform, if others have work in its queue or
    use its controllers, or if others have objects in its namespaces.

    The guard depends on everything else in the stack, so `pulumi destroy` deletes it first. When it
    refuses, nothing has been deleted.
    """

    def __init__(
        self, name: str, args: GuardArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:DestroyGuard", name, {}, opts)
        # If k3s is removed, everything in it disappears at once.
        controllers = [] if args.k3s_is_ours else list(args.controllers)
        own_namespaces = [] if args.k3s_is_ours else [each.fields() for each in args.own_namespaces]
        kube_command(
            f"{name}-look",
            "destroy-guard",
            args.connection,
            {
                "k3s_is_ours": args.k3s_is_ours,
                **({"queue": dict(args.queue)} if args.queue else {}),
                **({"controllers": controllers} if controllers else {}),
                **({"own_namespaces": own_namespaces} if own_namespaces else {}),
            },
            child_options(self, opts),
        )
        self.register_outputs({})


LONGEST_SAVE_SECONDS = 86400
"""The engine's limit for the task. The task knows how long pods may save, and ends by itself."""


@dataclass(frozen=True)
class TaskPodsArgs:
    """The cluster, and which pods are removed.

    Args:
        connection: how the cluster is reached.
        everyone: whether the pods of every stack are removed, because the claim and the namespace
            are deleted.
        lost_nodes_are_replaced: whether the setting `lostNodes` gives up the pods of a lost
            machine. For a platform of another stack this is False, and the task itself finds out.
    """

    connection: Connection
    everyone: bool
    lost_nodes_are_replaced: bool = False


class TaskPods(pulumi.ComponentResource):
    """Removes pods that commands such as `./disttrain sample` have started.

    Such a pod ends with its command. `pulumi destroy` first removes those that are left, because
    even a finished pod keeps the claim from being deleted. The task also waits for the pods of the
    training, which have been told to end by then. If a pod does not end because its machine is
    lost, the task names that machine.
    """

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
            child_options(self, opts),
            limit_seconds=LONGEST_SAVE_SECONDS,
        )
        self.register_outputs({})
