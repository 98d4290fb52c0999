"""What the commands of several deliveries have in common."""

import json
from pathlib import Path
from typing import cast

from infra.deliveries.kind import DeliveryRequest

PROJECT = Path(__file__).parents[2]
# From the project's folder, in which the engine starts commands: inputs and the recorded delete
# are the same in every checkout.
PYTHON = ".venv/bin/python"


def plan_arguments(request: DeliveryRequest) -> list[str]:
    """The arguments that name the same image again."""
    plan = request.plan
    return [
        *("--repository", plan.repository),
        *("--base-image", plan.base_image),
        f"--torch-index-url={plan.torch_index_url or ''}",
    ]


def project_path(path: Path) -> str:
    """A path that is the same in every checkout, if it lies in the checkout."""
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)


def json_field(stdout: str, name: str) -> str:
    """A field of the JSON object in the last line of a command's output."""
    return cast(str, json.loads(stdout.strip().splitlines()[-1])[name])
