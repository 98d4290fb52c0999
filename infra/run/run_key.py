"""Makes the key by which the pods of a run recognise each other."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_command import local

from infra.dependencies import child_options
from infra.kube_command import PYTHON
from infra.labels import content_hash, metadata
from infra.names import TRAINING
from infra.objects import Manifest, kubernetes_object, secret_value


@dataclass(frozen=True)
class RunKeyArgs:
    """The name and the namespace of the Secret, and the stack to which it belongs."""

    secret: str
    namespace: str
    stack: str
    owner: pulumi.Output[str]


class RunKey(pulumi.ComponentResource):
    """A random key that is made once, kept in the stack's state and given to the training pods.

    The pods use it to sign the messages with which they gather, so that no other pod of the cluster
    can join the run or end it.
    """

    def __init__(
        self, name: str, args: RunKeyArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:RunKey", name, {}, opts)
        key = local.Command(
            f"{name}-random",
            create=f"{PYTHON} -c 'import secrets; print(secrets.token_hex(32))'",
            add_previous_output_in_env=False,
            logging=local.Logging.NONE,
            opts=pulumi.ResourceOptions(
                parent=self, additional_secret_outputs=["stdout", "stderr"]
            ),
        )
        kubernetes_object(
            f"{name}-secret",
            _manifest(
                args, {"key": secret_value(pulumi.Output.secret(key.stdout).apply(str.strip))}
            ),
            child_options(self, opts),
        )
        self.register_outputs({})


def run_key_name(stack: str) -> str:
    """The name of a stack's Secret. Two stacks never share one."""
    return f"run-key-{content_hash(stack)}"


def _manifest(args: RunKeyArgs, data: Mapping[str, pulumi.Output[str]]) -> Manifest:
    about = metadata(args.secret, args.namespace, TRAINING, stack=args.stack, owner=args.owner)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "data": data}
