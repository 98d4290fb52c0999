"""Task `apply-definitions`: makes the CustomResourceDefinitions of a controller from its manifests.

They are no resources of the engine, because each has tens of thousands of values, which every
command would compare and write into the state again. The task `controller-remains` deletes them.
"""

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.job import Job
from infra.kube.objects import Json, is_true, name_of, names_of
from infra.kube.paths import DEFINITIONS
from infra.kube.waiting import wait_for

APPLY = "application/apply-patch+yaml"  # JSON is valid YAML
MANAGER = "disttrain"
SERVED_SECONDS = 240


def packed(definitions: Sequence[dict[str, Any]]) -> str:
    """The definitions as one text. Equal definitions give equal texts."""
    content = json.dumps(definitions, sort_keys=True, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def unpacked(text: str) -> list[Json]:
    """The definitions from which `packed` has made the text."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


def create(job: Job, api: Api) -> None:
    """Make or update the definitions, and wait until the API server serves their kinds.

    The task `claim-controller` has checked before that none of them belongs to somebody else.

    Raises:
        TaskError: the API server does not serve them in time. The text names them.
    """
    definitions = unpacked(job.text("definitions"))
    labels = {names.OWNER_LABEL: job.owner, names.STACK_LABEL: job.stack}
    for item in definitions:
        about = dict[str, Any](item["metadata"])
        about["labels"] = {**about.get("labels", {}), **labels}
        api.request(
            "PATCH",
            f"{DEFINITIONS}/{name_of(item)}",
            {**item, "metadata": about},
            query={"fieldManager": MANAGER, "force": "true"},
            content_type=APPLY,
        )

    def ask() -> str:
        found = [(item, api.get(f"{DEFINITIONS}/{name_of(item)}")) for item in definitions]
        missing = [item for item, there in found if not (there and is_true(there, "Established"))]
        return f"not served yet: {names_of(missing)}" if missing else ""

    wait_for("the definitions to be served", ask, SERVED_SECONDS)
