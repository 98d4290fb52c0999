"""Looks at a namespace of the platform before an `up` deletes it."""

from dataclasses import dataclass

import pulumi

from infra.dependencies import dependencies
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.kube_command import Connection, kube_command


@dataclass(frozen=True)
class NamespaceGuardArgs:
    """The cluster, and the namespace that is looked at."""

    connection: Connection
    place: OwnNamespace


class NamespaceGuard(pulumi.ComponentResource):
    """Refuses to take a part of the platform away in whose namespace others have objects.

    It depends on that part. `pulumi destroy` asks the same by the DestroyGuard, before anything is
    deleted; this is for an `up` that takes the part away alone.
    """

    guarded: pulumi.Output[str]
    """Name of the namespace."""

    def __init__(
        self, name: str, args: NamespaceGuardArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:NamespaceGuard", name, {}, opts)
        kube_command(
            f"{name}-look",
            "namespace-guard",
            args.connection,
            {"own_namespaces": [args.place.fields()]},
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        self.guarded = pulumi.Output.from_input(args.place.name)
        self.register_outputs({"guarded": self.guarded})
