"""Gives each stack's state an identity of its own, because stacks may have equal names."""

from collections.abc import Iterable, Mapping

import pulumi
from pulumi_command import local

from infra.kube_command import PYTHON
from infra.platform.stack_name import shown_stack_name
from infra.platform.stack_state import StateResource

COMPONENT = "disttrain:infra:Owner"


class Owner(pulumi.ComponentResource):
    """A random identity that is made once and kept in the stack's state.

    Two people may each have a stack `dev` in a backend of their own. Every object carries the
    identity of its stack as a label, so that neither stack takes over or deletes the objects of the
    other one.
    """

    identity: pulumi.Output[str]
    """A UUID; unknown in the preview before the first `pulumi up`."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(COMPONENT, name, {}, opts)
        command = local.Command(
            f"{name}-identity",
            create=f"{PYTHON} -c 'import uuid; print(uuid.uuid4())'",
            add_previous_output_in_env=False,
            logging=local.Logging.NONE,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.identity = command.stdout
        self.register_outputs({"identity": self.identity})


def owner_in_state(resources: Iterable[StateResource]) -> str:
    """The identity that a former `up` of this stack has made; empty if there was none.

    In contrast to `Owner.identity` it is known before any resource is registered. This function is
    pure.

    Args:
        resources: the resources in the stack's state.
    """
    for resource in resources:
        if resource.type == COMPONENT:
            return str(resource.outputs.get("identity") or "")
    return ""


def whose(owner: pulumi.Input[str], stack: str) -> Mapping[str, pulumi.Input[str]]:
    """Variables with which a script records on a host which stack made something there.

    Args:
        owner: the identity of the platform, from `Owner`.
        stack: name of the platform's stack, as the settings have it.
    """
    return {"OWNER": owner, "STACK": shown_stack_name(stack)}
