"""Tells the state of one stack from that of every other, whatever the stacks are called."""

from collections.abc import Mapping

import pulumi
from pulumi_command import local

from infra.kube_command import PYTHON
from infra.platform.stack_name import shown_stack_name


class Owner(pulumi.ComponentResource):
    """A random identity that is made once and kept in the stack's state.

    Two people may each have a stack `dev` in a backend of their own. The objects of both carry
    their owner as a label, so that neither takes over or deletes what the other one made.
    """

    identity: pulumi.Output[str]
    """A UUID; unknown in the preview before the first `pulumi up`."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("disttrain:infra:Owner", name, {}, opts)
        command = local.Command(
            f"{name}-identity",
            create=f"{PYTHON} -c 'import uuid; print(uuid.uuid4())'",
            add_previous_output_in_env=False,
            logging=local.Logging.NONE,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.identity = command.stdout
        self.register_outputs({"identity": self.identity})


def whose(owner: pulumi.Input[str], stack: str) -> Mapping[str, pulumi.Input[str]]:
    """Variables of scripts, which note whose something on a host is.

    Args:
        owner: identifies the platform.
        stack: name of its stack, as the settings have it.
    """
    return {"OWNER": owner, "STACK": shown_stack_name(stack)}
