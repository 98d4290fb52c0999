"""Delivery `import`: straight into the containerd of the node, layer by layer, without a registry.

One command, `python -m infra.image`, builds and imports; docs/image.md says how.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.command_line import cache_folder
from infra.deliveries.command import PYTHON, content_arguments, delivered, project_path
from infra.deliveries.kind import Delivered, DeliveryKind, DeliveryRequest, NodeTarget
from infra.image import presence
from infra.image.build_context import TORCH_INDEX_VARIABLE
from infra.image.containerd import Containerd
from infra.image.plan import VARIABLE as PLANNED_VARIABLE
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
        keepUnusedMinutes: tags of the image that no container uses are removed from the node,
            unless they were asked for within this time.
    """

    keepUnusedMinutes: int = KEEP_UNUSED_MINUTES  # noqa: N815 - as the stack's settings name it

    def __post_init__(self) -> None:
        check_minutes(self.keepUnusedMinutes)


def check(asked: DeliveryAsked) -> Iterator[Refusal]:
    """Refuse that each of several machines would build the image."""
    if asked.further and asked.build_on == "node":
        yield Refusal(
            "imageBuildOn",
            "node",
            "nodes lists several machines, and each would build the image for itself",
            "Set imageBuildOn here, or imageDelivery mirror or registry",
            with_keys=("nodes",),
        )


def check_minutes(minutes: int) -> None:
    """Raise OptionError for a time that is none."""
    if minutes < 0:
        raise OptionError(
            "keepUnusedMinutes",
            "it is a time",
            "Set 0 to remove tags that no container uses at once, or a number of minutes",
        )


def deliver(name: str, request: DeliveryRequest, opts: pulumi.ResourceOptions) -> Delivered:
    """The commands that keep the image in containerd: `<name>-ensure`, and `<name>-ensure-<node>`
    for each further machine. They run side by side, and each sends the layers that are missing."""
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
    """The command that keeps the image in a node's containerd, and removes it when it goes.

    Each kind that writes to nodes has it under the same names, so that another choice of the kind
    changes how the image gets there, and does not remove it.

    Args:
        name: of the resource.
        request: the image.
        node: where.
        create: how the image gets there.
        opts: of the resource.
        more: further variables of `create`.
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
                # A lost node: the command is dropped from the stack's state and nothing is run.
                ignore_changes=["create", "delete", "environment", "stdin"] if lost else None,
                retain_on_delete=lost or None,
                custom_timeouts=pulumi.CustomTimeouts(create="1h", update="1h", delete="10m"),
            ),
        ),
    )


def _environment(request: DeliveryRequest, node: NodeTarget) -> dict[str, pulumi.Input[str]]:
    """Changed inputs run the command again: a new tag, or an image that has gone."""
    import pulumi

    # The node is asked in another thread, beside the rest of the program.
    ask = "" if node.is_lost else asyncio.to_thread(look, request, node)
    values: dict[str, pulumi.Input[str]] = {
        PLANNED_VARIABLE: request.plan.reference,
        presence.VARIABLE: pulumi.Output.from_input(ask),
        **request.proxies,
    }
    if node.way:
        values[NODE_VARIABLE] = pulumi.Output.secret(node.way)
    if request.torch_index_login:
        values[TORCH_INDEX_VARIABLE] = request.torch_index_login
    return values


def look(request: DeliveryRequest, target: NodeTarget) -> str:
    """Ask a node's containerd for the image; the answer is `presence.import_request`'s."""
    with open_node(target.way or None) as node:
        containerd = Containerd(
            shlex.split(request.ctr),
            request.containerd_address or None,
            node=node,
            patience_seconds=presence.PATIENCE_SECONDS,
        )
        return presence.import_request(request.plan, containerd, cache_folder(), target.shown)


def ensure_command(request: DeliveryRequest) -> str:
    """Builds what is missing, or takes it from the bundle, and imports what containerd lacks."""
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
    """Removes exactly these names, also when the sources have changed since.

    They are made of the content, so another platform on this node may have the same ones.
    """
    names = (request.plan.reference, request.plan.deps_reference)
    references = [part for name in names for part in ("--reference", name)]
    return shlex.join([*program("remove", request), *references, *platform(request)])


def platform(request: DeliveryRequest) -> list[str]:
    """The arguments that name the platform which wants the image."""
    return ["--pods-of", request.namespace] if request.namespace else []


def program(action: str, request: DeliveryRequest) -> list[str]:
    """The words that run an action on the image in a node's containerd."""
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
