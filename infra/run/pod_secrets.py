"""Gives the training pods variables that must stay secret, such as credentials of a store."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from infra.dependencies import child_options
from infra.labels import content_hash, metadata
from infra.names import TRAINING
from infra.objects import Manifest, kubernetes_object, secret_value
from infra.settings.secret import Secret


@dataclass(frozen=True)
class PodSecretsArgs:
    """The variables, the name and namespace of their Secret, and the stack that owns it."""

    secret: str
    variables: Mapping[str, Secret]
    namespace: str
    stack: str
    owner: pulumi.Output[str]


class PodSecrets(pulumi.ComponentResource):
    """A Secret whose fields become variables of the training container.

    Pods read it when they start. So a run uses a changed password only when its pods start again.
    """

    def __init__(
        self, name: str, args: PodSecretsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:PodSecrets", name, {}, opts)
        kubernetes_object(f"{name}-secret", _manifest(args), child_options(self, opts))
        self.register_outputs({})


def pod_secrets_name(stack: str, variables: Mapping[str, Secret]) -> str:
    """The name of a stack's Secret, which changes with the variables' names; empty without any."""
    return f"pod-secrets-{content_hash([stack, sorted(variables)])}" if variables else ""


def _manifest(args: PodSecretsArgs) -> Manifest:
    about = metadata(args.secret, args.namespace, TRAINING, stack=args.stack, owner=args.owner)
    data = {name: secret_value(secret.output) for name, secret in args.variables.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "data": data}
