"""Each supported version of a controller accepts the objects that this program makes.

The definitions are the projects' own. Those of the workloads are put on a real API server without
their controllers. Those of Kueue are only read, because other tests have put another version of
them on that server.
"""

from pathlib import Path
from unittest.mock import patch

import pytest

from infra.kube.errors import ApiError
from infra.kube.queues.kueue import GROUP
from infra.kube.queues.platform_queues_seen import QueuesSeen
from sandbox.tools.controllers import KUEUE
from tests.kube.api_levels import (
    LEVELS,
    definitions,
    rendered,
    schemas_of_kueue,
    served,
    unknown_fields,
)
from tests.kube.lab import Json, Lab, wait_for
from tests.kube.queue_fields import FIELDS
from tests.unit.stacks import deploy

STRICTLY = {"dryRun": "All", "fieldValidation": "Strict"}


@pytest.mark.parametrize(("topology", "version"), LEVELS)
def test_version_of_a_controller_knows_every_field(
    lab: Lab, tmp_path: Path, topology: str, version: str
) -> None:
    """The API server refuses no field of a run's objects with the definitions of this version.

    Outside this test, a field that a definition lacks would be dropped without a message.
    """
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
    """Return whether the API server lists the kind already."""
    found = lab.api.get(f"/apis/{item['apiVersion']}") or {}
    return any(each["kind"] == item["kind"] for each in found.get("resources", []))


QUEUES: dict[str, object] = {
    "queues": {
        "name": "gpus",
        "priorities": {"urgent": 1000},
        "topology": ["example.com/rack", "kubernetes.io/hostname"],
    },
    "topology": "none",
}
KINDS = {"ResourceFlavor", "Topology", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass"}


@pytest.mark.parametrize(
    ("version", "api_version"), [("0.14.8", "v1beta1"), (KUEUE, "v1beta1"), (KUEUE, "v1beta2")]
)
def test_version_of_kueue_knows_every_field(tmp_path: Path, version: str, api_version: str) -> None:
    """This version of Kueue has all fields that `up` writes for a queue, and all that are read of
    it.
    """
    seen = QueuesSeen(api_version, {"cpu": "16", "memory": "64Gi"})
    with patch("tests.unit.stacks.KUEUE", lambda: seen):
        made = deploy("sandbox", tmp_path, QUEUES)
    schemas = schemas_of_kueue(version, api_version)
    of_kind, kinds = dict(schemas.values()), set[str]()
    for resource in made.resources:
        if resource.type.startswith(f"kubernetes:{GROUP}/{api_version}:"):
            kind = resource.type.rpartition(":")[2]
            assert unknown_fields(resource.inputs, of_kind[kind]) == []
            kinds.add(kind)
    assert kinds == KINDS
    for plural, paths in FIELDS.items():
        for path in paths:
            assert unknown_fields(nested(path), schemas[plural][1]) == []


def nested(path: str) -> Json:
    """Return an object with this field, such as `spec.queueName`."""
    found: Json = {}
    for name in reversed(path.split(".")):
        found = {name: found}
    return found
