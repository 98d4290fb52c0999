"""Builds the parts that the commands of several deliveries have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

from infra.deliveries.kind import Delivered, DeliveryRequest

if TYPE_CHECKING:
    import pulumi
    from pulumi_command import local

PROJECT = Path(__file__).parents[2]
# The path is relative to the project's folder, in which the engine starts commands. So the inputs
# and the recorded delete command are the same in every checkout.
PYTHON = ".venv/bin/python"
LIMIT_SECONDS = 7200
"""After this time the engine ends a command that builds the image or sends it to a node or to a
registry. With a slow network, the dependencies alone may take an hour."""


def limits(delete: str | None = None) -> pulumi.CustomTimeouts:
    """Return the engine's time limits for a command that builds or sends the image.

    Args:
        delete: the limit of its delete command; None: Pulumi's default.
    """
    import pulumi

    longest = f"{LIMIT_SECONDS}s"
    return pulumi.CustomTimeouts(create=longest, update=longest, delete=delete)


def plan_arguments(request: DeliveryRequest) -> list[str]:
    """Return the arguments from which `infra.image` plans the same image again."""
    return ["--repository", request.plan.repository, *content_arguments(request)]


def content_arguments(request: DeliveryRequest) -> list[str]:
    """Return the arguments that name the inputs of the image, without its repository."""
    plan = request.plan
    if plan.context:
        return ["--program", project_path(plan.context)]
    return ["--base-image", plan.base_image, f"--torch-index-url={plan.torch_index_url or ''}"]


def project_path(path: Path) -> str:
    """Return a path relative to the checkout if it is inside, so that it is the same in all."""
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)


def delivered(request: DeliveryRequest, command: local.Command) -> Delivered:
    """Return what a command has delivered. Its last line of output is JSON with the digest."""
    import pulumi

    return Delivered(
        reference=pulumi.Output.from_input(request.plan.reference),
        digest=command.stdout.apply(last_digest),
    )


def last_digest(stdout: str) -> str:
    """Return the digest in the last line of a command's output, which is a JSON object."""
    return cast(str, json.loads(stdout.strip().splitlines()[-1])["digest"])
