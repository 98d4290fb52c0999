"""The Secret with which the nodes pull the trainer image from a registry."""

from dataclasses import dataclass, field

import pulumi

from infra.dependencies import child_options
from infra.labels import metadata
from infra.objects import Manifest, kubernetes_object, secret_value


@dataclass(frozen=True)
class PullSecretArgs:
    """The Secret's name, content and namespace, and who owns it."""

    secret: str
    docker_config: str = field(repr=False)
    namespace: str
    stack: str
    owner: pulumi.Output[str]


class PullSecret(pulumi.ComponentResource):
    """A Secret of type `kubernetes.io/dockerconfigjson`, for pods of this platform."""

    def __init__(
        self, name: str, args: PullSecretArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:PullSecret", name, {}, opts)
        kubernetes_object(f"{name}-secret", pull_secret(args), child_options(self, opts))
        self.register_outputs({})


def pull_secret(args: PullSecretArgs) -> Manifest:
    """The manifest of the Secret."""
    content = secret_value(pulumi.Output.secret(args.docker_config))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(
            args.secret, args.namespace, "image", stack=args.stack, owner=args.owner
        ),
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": content},
    }
