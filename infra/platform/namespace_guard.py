"""Checks a namespace of the platform before an `up` deletes it."""

from dataclasses import dataclass

import pulumi

from infra.dependencies import child_options
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.kube_command import Connection, kube_command


@dataclass(frozen=True)
class NamespaceGuardArgs:
    """How the cluster is reached, and the namespace that is checked."""

    connection: Connection
    namespace: OwnNamespace


class NamespaceGuard(pulumi.ComponentResource):
    """Refuses to remove a part of the platform if others have objects in the part's namespace.

    It depends on that part, so it is deleted first, and then its task checks the namespace. For
    `pulumi destroy` DestroyGuard does the same check before anything is deleted. This component is
    for an `up` that removes only this part.
    """

    def __init__(
        self, name: str, args: NamespaceGuardArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:NamespaceGuard", name, {}, opts)
        kube_command(
            f"{name}-look",
            "namespace-guard",
            args.connection,
            {"own_namespaces": [args.namespace.fields()]},
            child_options(self, opts),
        )
        self.register_outputs({})
