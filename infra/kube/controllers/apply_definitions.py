"""Task `apply-definitions`: makes the definitions of a controller that comes by manifests.

As resources of the engine they would be tens of thousands of values each, which every command
would compare and write into the state again and again. `controller-remains` takes them away.
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

APPLY = "application/apply-patch+yaml"  # JSON is YAML
MANAGER = "disttrain"
SERVED_SECONDS = 240


def packed(definitions: Sequence[dict[str, Any]]) -> str:
    """The definitions as one text; the same ones give the same text."""
    content = json.dumps(definitions, sort_keys=True, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def unpacked(text: str) -> list[Json]:
    """What `packed` was given."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


def create(job: Job, api: Api) -> None:
    """Make them, or change those of an older version, and wait until their kinds are served.

    `claim-controller` has seen that none of them is somebody else's.

    Raises:
        TaskError: the API server does not serve them in time; names them.
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


def delete(job: Job, api: Api) -> None:
    """Nothing: the controller may still need them, and `controller-remains` comes last."""
    del job, api
