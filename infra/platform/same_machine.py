"""Refuses an existing cluster on another machine if the platform uses the node's own folders."""

from dataclasses import dataclass

import pulumi

from infra.deliveries import DELIVERIES
from infra.dependencies import child_options
from infra.kube_command import Connection, kube_command
from infra.platform.stack_name import shown_stack_name
from infra.settings import PlatformSettings
from infra.storages.kind import Storage


@dataclass(frozen=True)
class SameMachineArgs:
    """How the cluster is reached."""

    connection: Connection


class SameMachine(pulumi.ComponentResource):
    """Checks that the cluster's node is this machine, before anything is made on this machine.

    With `cluster: existing`, the data folder and containerd are those of the machine that runs
    Pulumi. If the kubeconfig led to another machine, the folder and the image would be where no pod
    finds them.
    """

    def __init__(
        self, name: str, args: SameMachineArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:SameMachine", name, {}, opts)
        child = child_options(self, opts)
        kube_command(f"{name}-look", "same-machine", args.connection, {}, child)
        self.register_outputs({})


def make_same_machine_check(
    settings: PlatformSettings, storage: Storage, owner: pulumi.Output[str]
) -> list[pulumi.Resource]:
    """Register the check, for which everything on this machine waits.

    The list is empty if this machine need not be the cluster's node.
    """
    cluster = settings.cluster
    needs_node = storage.folder_on_host or DELIVERIES[settings.delivery.name].needs_node
    if cluster.kind != "existing" or not needs_node:
        return []
    connection = Connection(
        kubeconfig=pulumi.Output.from_input(cluster.kubeconfig),
        kubeconfig_is_path=True,
        context=cluster.context,
        namespace=settings.namespace,
        stack=shown_stack_name(settings.stack),
        owner=owner,
    )
    return [SameMachine("same-machine", SameMachineArgs(connection))]
