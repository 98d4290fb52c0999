"""The namespace of the platform. A namespace that somebody else has made is refused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.dependencies import child_options
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.kube_command import Connection, kube_command
from infra.labels import metadata
from infra.objects import kubernetes_object, uid_of


@dataclass(frozen=True)
class NamespaceArgs:
    """What the namespace needs.

    Args:
        connection: how the cluster is reached; also the name of the namespace, and its owner.
        stack: name of the stack.
        exists: whether the settings say to use a namespace that exists already. It stays as it is.
        kept: whether `pulumi destroy` leaves the namespace, because the claim in it holds the data.
        fixed_names: the API server's paths of objects of the platform with names that objects of
            others may have too.
    """

    connection: Connection
    stack: str
    exists: bool
    kept: bool
    fixed_names: Sequence[str]


def namespace_manifest(args: NamespaceArgs) -> dict[str, Any]:
    """The manifest of the namespace."""
    connection = args.connection
    name, owner = connection.namespace, connection.owner
    about = metadata(name, None, "namespace", stack=args.stack, owner=owner)
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": about}


def own_namespace(args: NamespaceArgs) -> list[OwnNamespace]:
    """The namespace, if `pulumi destroy` deletes it with everything in it; otherwise nothing."""
    if args.exists or args.kept:
        return []
    return [OwnNamespace(args.connection.namespace, "the platform")]


class Namespace(pulumi.ComponentResource):
    """The namespace that holds the objects of the platform and of its runs.

    `pulumi destroy` deletes it with everything in it, unless it is kept. So if a namespace exists
    and does not carry the label of this stack's owner, it is refused before anything is made. With
    `namespaceExisting: use` no object is registered, so nothing changes or deletes the namespace.
    Objects of others with the names of the platform's objects are refused, too.
    """

    uid: pulumi.Output[str]
    """The uid of the namespace. It changes if the namespace was deleted by hand and made again."""

    def __init__(
        self, name: str, args: NamespaceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:Namespace", name, {}, opts)
        connection = args.connection
        self.claimed = kube_command(
            f"{name}-look",
            "use-namespace" if args.exists else "claim-namespace",
            connection,
            _job(args),
            child_options(self, opts),
        )
        after_claim = pulumi.ResourceOptions(parent=self, depends_on=[self.claimed])
        paths = {"paths": [*args.fixed_names]}
        names = kube_command(f"{name}-names", "claim-names", connection, paths, after_claim)
        if args.exists:
            self.uid = self.claimed.stdout
        else:
            retained = pulumi.ResourceOptions(retain_on_delete=args.kept or None)
            after = pulumi.ResourceOptions(parent=self, depends_on=[names])
            made = kubernetes_object(
                f"{name}-namespace",
                namespace_manifest(args),
                pulumi.ResourceOptions.merge(after, retained),
            )
            self.uid = uid_of(made)
        self.register_outputs({"uid": self.uid})


def _job(args: NamespaceArgs) -> dict[str, Any]:
    """Fields of the job of the task that checks the namespace.

    `kept` is left out if it is False. Then the job is the same as in earlier versions, and the task
    does not run again for a stack that is up.
    """
    if args.exists:
        return {}
    names = {"names": [args.connection.namespace]}
    return {**names, "kept": True} if args.kept else names
