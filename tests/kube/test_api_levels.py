"""Each version of a controller that users may have takes what this program makes (goal E8).

The definitions are the projects' own, on a real API server. No controller runs.
"""

from pathlib import Path

import pytest

from infra.kube.errors import ApiError
from tests.kube.api_levels import LEVELS, definitions, rendered, served
from tests.kube.lab import Json, Lab, wait_for

STRICTLY = {"dryRun": "All", "fieldValidation": "Strict"}


@pytest.mark.parametrize(("topology", "version"), LEVELS)
def test_version_of_a_controller_knows_every_field(
    lab: Lab, tmp_path: Path, topology: str, version: str
) -> None:
    """A field that a definition lacks would be dropped without a word."""
    namespace, items = lab.namespace(), rendered(topology, tmp_path)
    assert items

    def send(item: Json) -> None:
        path = lab.api.path(item["apiVersion"], item["kind"], namespace)
        item["metadata"]["namespace"] = namespace
        lab.api.request("POST", path, item, query=STRICTLY)

    with served(lab, definitions(topology, version)):
        paths = {f"/apis/{item['apiVersion']}" for item in items}
        wait_for("the kinds", lambda: all(lab.api.get(path) for path in paths))
        for item in items:
            wait_for(f"a path for {item['kind']}", lambda item=item: known(lab, item))
            send(item)
            item["spec"]["noSuchField"] = 1
            with pytest.raises(ApiError, match=r'unknown field "spec.noSuchField"'):
                send(item)


def known(lab: Lab, item: Json) -> bool:
    """Whether the API server lists the kind already."""
    found = lab.api.get(f"/apis/{item['apiVersion']}") or {}
    return any(each["kind"] == item["kind"] for each in found.get("resources", []))
