"""What the commands of several deliveries have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

from infra.deliveries.kind import Delivered, DeliveryRequest

if TYPE_CHECKING:
    from pulumi_command import local

PROJECT = Path(__file__).parents[2]
# From the project's folder, in which the engine starts commands: inputs and the recorded delete
# are the same in every checkout.
PYTHON = ".venv/bin/python"


def plan_arguments(request: DeliveryRequest) -> list[str]:
    """The arguments that name the same image again."""
    return ["--repository", request.plan.repository, *content_arguments(request)]


def content_arguments(request: DeliveryRequest) -> list[str]:
    """The arguments that name what the image is made of."""
    plan = request.plan
    if plan.context:
        return ["--program", project_path(plan.context)]
    return ["--base-image", plan.base_image, f"--torch-index-url={plan.torch_index_url or ''}"]


def project_path(path: Path) -> str:
    """A path that is the same in every checkout, if it lies in the checkout."""
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)


def delivered(request: DeliveryRequest, command: local.Command) -> Delivered:
    """What a command has brought: its last line of output is a JSON object with the digest."""
    import pulumi

    return Delivered(
        reference=pulumi.Output.from_input(request.plan.reference),
        digest=command.stdout.apply(last_digest),
    )


def last_digest(stdout: str) -> str:
    """The digest in the last line of a command's output, a JSON object."""
    return cast(str, json.loads(stdout.strip().splitlines()[-1])["digest"])
