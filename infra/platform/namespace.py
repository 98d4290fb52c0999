"""The namespace of the platform; it is refused where somebody else has made it."""

from dataclasses import dataclass
from typing import Any

import pulumi

from infra.dependencies import dependencies
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.kube_command import Connection, kube_command
from infra.labels import metadata
from infra.objects import kubernetes_object, uid_of


@dataclass(frozen=True)
class NamespaceArgs:
    """What the namespace needs.

    Args:
        connection: the cluster; names the namespace and its owner.
        stack: name of the stack.
        exists: it is there before, and stays as it is.
        kept: `destroy` leaves it, because the claim in it holds the data.
    """

    connection: Connection
    stack: str
    exists: bool = False
    kept: bool = False


def namespace_manifest(args: NamespaceArgs) -> dict[str, Any]:
    """The object."""
    connection = args.connection
    name, owner = connection.namespace, connection.owner
    about = metadata(name, None, "namespace", stack=args.stack, owner=owner)
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": about}


def own_namespace(args: NamespaceArgs) -> list[OwnNamespace]:
    """The namespace, where `destroy` deletes it with all that is in it; otherwise nothing."""
    if args.exists or args.kept:
        return []
    return [OwnNamespace(args.connection.namespace, "the platform")]


class Namespace(pulumi.ComponentResource):
    """Everything of the platform and of its runs lies in this namespace.

    `destroy` deletes it with all that is in it, unless it is kept. So a namespace that exists and
    does not carry the label of this stack's owner is refused before anything is made. With
    `namespaceExisting: use` no object is registered, and so nothing changes or deletes it.
    """

    uid: pulumi.Output[str]
    """Of the object; it is another one when the namespace was deleted by hand and made again."""
    namespace_name: pulumi.Output[str]

    def __init__(
        self, name: str, args: NamespaceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:Namespace", name, {}, opts)
        connection = args.connection
        self.look = kube_command(
            f"{name}-look",
            "use-namespace" if args.exists else "claim-namespace",
            connection,
            _job(args),
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        if args.exists:
            self.uid = self.look.stdout
        else:
            retained = pulumi.ResourceOptions(retain_on_delete=args.kept or None)
            after = pulumi.ResourceOptions(parent=self, depends_on=[self.look])
            made = kubernetes_object(
                f"{name}-namespace",
                namespace_manifest(args),
                pulumi.ResourceOptions.merge(after, retained),
            )
            self.uid = uid_of(made)
        self.namespace_name = pulumi.Output.from_input(connection.namespace)
        self.register_outputs({"namespaceName": self.namespace_name, "uid": self.uid})


def _job(args: NamespaceArgs) -> dict[str, Any]:
    """Fields for the look at the namespace.

    `kept` is left out where it is False: then they are those of earlier versions, and the look of a
    stack that is up does not run again.
    """
    if args.exists:
        return {}
    names = {"names": [args.connection.namespace]}
    return {**names, "kept": True} if args.kept else names
