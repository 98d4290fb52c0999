"""Delivery `import`: brings the image straight into each node's containerd, without a registry.

One command, `python -m infra.image`, builds and imports the layers (docs/image.md).
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.command_line import cache_folder
from infra.deliveries.command import PYTHON, content_arguments, delivered, limits, project_path
from infra.deliveries.kind import Delivered, DeliveryKind, DeliveryRequest, NodeTarget
from infra.image import presence
from infra.image.build_context import TORCH_INDEX_VARIABLE
from infra.image.containerd import Containerd
from infra.image.plan import VARIABLE as PLANNED_VARIABLE
from infra.image.pods_images import VARIABLE as PODS_VARIABLE
from infra.image.prune import KEEP_UNUSED_MINUTES
from infra.image.reach import open_node
from infra.node.node_variable import VARIABLE as NODE_VARIABLE
from infra.registry import OptionError, Refusal
from infra.settings.asked import DeliveryAsked

if TYPE_CHECKING:
    import pulumi
    from pulumi_command import local


@dataclass(frozen=True)
class ImportOptions:
    """Keys of `imageDeliveryOptions`.

    Args:
        keepUnusedMinutes: minutes for which unused tags of the image stay on the node. Tags that
            no container uses are removed unless they were asked for within this time.
    """

    keepUnusedMinutes: int = KEEP_UNUSED_MINUTES  # noqa: N815 - as the stack's settings name it

    def __post_init__(self) -> None:
        check_minutes(self.keepUnusedMinutes)


def check(asked: DeliveryAsked) -> Iterator[Refusal]:
    """Refuse a build at the node with several machines, because each would build the image."""
    if asked.further and asked.build_on == "node":
        yield Refusal(
            "imageBuildOn",
            "node",
            "nodes lists several machines, and each would build the image for itself",
            "Set imageBuildOn here, or imageDelivery mirror or registry",
            with_keys=("nodes",),
        )


def check_minutes(minutes: int) -> None:
    """Raise OptionError for a negative time."""
    if minutes < 0:
        raise OptionError(
            "keepUnusedMinutes",
            "it is a time",
            "Set 0 to remove tags that no container uses at once, or a number of minutes",
        )


def deliver(name: str, request: DeliveryRequest, opts: pulumi.ResourceOptions) -> Delivered:
    """Register the commands that keep the image in the nodes' containerds.

    They are `<name>-ensure` for the first machine, and `<name>-ensure-<node>` for each further
    machine. They run at the same time, and each sends the layers that its node lacks.
    """
    ensure = ensure_command(request)
    for node in request.further:
        keep_on_node(f"{name}-ensure-{node.name}", request, node, ensure, opts)
    return delivered(request, keep_on_node(f"{name}-ensure", request, request.node, ensure, opts))


def keep_on_node(
    name: str,
    request: DeliveryRequest,
    node: NodeTarget,
    create: str,
    opts: pulumi.ResourceOptions,
    more: Mapping[str, pulumi.Input[str]] | None = None,
) -> local.Command:
    """Register the command that keeps the image in a node's containerd.

    When the command is deleted, it removes the image. Every kind that writes to nodes gives the
    command the same name. So with another kind, the command is changed and the image stays.

    Args:
        name: name of the resource.
        request: the image.
        node: the node that gets the image.
        create: the shell command that brings the image there.
        opts: options of the resource.
        more: further variables for `create`.
    """
    import pulumi
    from pulumi_command import local

    lost = node.is_lost
    return local.Command(
        name,
        create=create,
        delete=remove_command(request),
        environment={**_environment(request, node), **(more or {})},
        stdin=request.authorities or None,
        add_previous_output_in_env=False,
        opts=pulumi.ResourceOptions.merge(
            opts,
            pulumi.ResourceOptions(
                delete_before_replace=True,
                # For a lost node nothing is run. Its command is only removed from the state.
                ignore_changes=["create", "delete", "environment", "stdin"] if lost else None,
                retain_on_delete=lost or None,
                custom_timeouts=limits(delete="10m"),
            ),
        ),
    )


def _environment(request: DeliveryRequest, node: NodeTarget) -> dict[str, pulumi.Input[str]]:
    """Return the command's variables. The command runs again if one changes.

    They change with the tag, or if the image has gone from the node.
    """
    import pulumi

    # The node is asked in another thread, so that the program does not wait for it.
    ask = "" if node.is_lost else asyncio.to_thread(ask_node, request, node)
    values: dict[str, pulumi.Input[str]] = {
        PLANNED_VARIABLE: request.plan.reference,
        presence.VARIABLE: pulumi.Output.from_input(ask),
        **request.proxies,
    }
    if request.further:
        values[PODS_VARIABLE] = pulumi.Output.secret(request.kubeconfig)
    if node.access:
        values[NODE_VARIABLE] = pulumi.Output.secret(node.access)
    if request.torch_index_login:
        values[TORCH_INDEX_VARIABLE] = request.torch_index_login
    return values


def ask_node(request: DeliveryRequest, target: NodeTarget) -> str:
    """Ask a node's containerd for the image, and return what `presence.import_request` returns."""
    with open_node(target.access or None) as node:
        containerd = Containerd(
            shlex.split(request.ctr),
            request.containerd_address or None,
            node=node,
            patience_seconds=presence.PATIENCE_SECONDS,
        )
        return presence.import_request(request.plan, containerd, cache_folder(), target.shown)


def ensure_command(request: DeliveryRequest) -> str:
    """Return the command that imports what containerd lacks, from a build or from the bundle."""
    if request.bundled_layout:
        source = ["--layout", project_path(request.bundled_layout)]
    else:
        source = ["--builder", request.builder, "--build-on", request.build_on]
    if request.authorities:
        source += ["--authorities", "-"]
    source += ["--keep-unused-minutes", str(request.options.keepUnusedMinutes)]
    content = content_arguments(request)
    return shlex.join([*program("ensure", request), *content, *source, *platform(request)])


def remove_command(request: DeliveryRequest) -> str:
    """Return the command that removes exactly these names, even if the sources change later.

    The names are hashes of the content, so another platform on the node may have the same ones.
    """
    names = (request.plan.reference, request.plan.deps_reference)
    references = [part for name in names for part in ("--reference", name)]
    return shlex.join([*program("remove", request), *references, *platform(request)])


def platform(request: DeliveryRequest) -> list[str]:
    """Return the arguments that name the platform which wants the image."""
    return ["--pods-of", request.namespace] if request.namespace else []


def program(action: str, request: DeliveryRequest) -> list[str]:
    """Return the words that run an action on the image in a node's containerd."""
    return [
        *(PYTHON, "-m", "infra.image", action),
        *("--repository", request.plan.repository),
        *("--ctr", request.ctr),
        f"--address={request.containerd_address}",
    ]


KIND = DeliveryKind(
    name="import",
    deliver=deliver,
    check=check,
    options=ImportOptions,
    needs_node=True,
    serves_further=True,
)
