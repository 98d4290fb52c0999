"""Before the platform makes an object with a fixed name, it looks for an object of others with that
name.
"""

import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from infra.cluster_check import Installed
from infra.kube.api_server.findings import Findings
from tests.unit.program.parts import everything_before
from tests.unit.stacks import Deployment, deploy

OF_THE_CLUSTER = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
IN_THE_NAMESPACE = {"ConfigMap": "configmaps", "Secret": "secrets"}
OWNER = "disttrain:infra:Owner"
USED = {"namespace": "team-a", "namespaceExisting": "use"}


def looked_for(result: Deployment) -> set[str]:
    """Return the kinds and names that the task looks for, such as `secrets/proxy-config`."""
    paths = json.loads(result.one("namespace-names").program)["paths"]
    return {"/".join(path.split("/")[-2:]) for path in paths}


def made(result: Deployment, kinds: dict[str, str]) -> dict[str, str]:
    """Return the resources of these kinds, by kind and name as in a path."""
    found: dict[str, str] = {}
    for resource in result.resources:
        kind = resource.type.rpartition(":")[2]
        if resource.type.startswith("kubernetes:") and kind in kinds:
            found[f"{kinds[kind]}/{resource.inputs['metadata']['name']}"] = resource.name
    return found


@pytest.mark.parametrize(
    ("stack", "changes"),
    [
        ("dev", {"nodeHealth": "report"}),
        ("dev", {"nodeHealth": "cordon", "podPolicy": "warn"}),
        ("sandbox", {"lostNodes": "replace", "podPolicy": "deny"}),
        ("sandbox", {"lostNodes": "replace", "storageOptions": {"shared": True}, **USED}),
    ],
)
def test_every_object_of_the_cluster_is_looked_for(
    tmp_path: Path, stack: str, changes: dict[str, Any]
) -> None:
    """The task looks for exactly the names of the objects that the platform makes for the whole
    cluster, before any of them is made.
    """
    result = deploy(stack, tmp_path, changes)
    objects = made(result, OF_THE_CLUSTER)
    assert {name for name in looked_for(result) if name.startswith(("cl", "va"))} == {*objects}
    for resource in objects.values():
        assert "namespace-names" in everything_before(result, result.one(resource))


def test_namespace_of_others_is_looked_into(tmp_path: Path) -> None:
    """In a namespace that exists, the task also looks for the objects with fixed names, which are
    those that have no hash in their names.
    """
    result = deploy("sandbox", tmp_path, USED)
    objects = made(result, IN_THE_NAMESPACE)
    fixed = {name for name in objects if not re.search(r"-[0-9a-f]{10}$", name)}
    assert fixed == looked_for(result) == {"configmaps/proxy-config", "secrets/proxy-config"}
    for name in fixed:
        assert "namespace-names" in everything_before(result, result.one(objects[name]))


def test_preview_looks_for_the_same_names(tmp_path: Path) -> None:
    """A preview asks the cluster for the same objects, and knows those of a former `up`."""
    asked: list[Installed] = []

    def ask(*given: Any) -> Findings:
        asked.append(given[4])
        return Findings()

    with patch("tests.unit.stacks.ANSWER", ask):
        first = deploy("sandbox", tmp_path, USED)
        deploy("sandbox", tmp_path, USED, before=first)
    paths = json.loads(first.one("namespace-names").program)["paths"]
    assert [each.names for each in asked] == [paths, paths]
    (owner,) = (first.component_outputs[each.urn] for each in first.of_type(OWNER))
    assert [each.owner for each in asked] == ["", owner["identity"]]
