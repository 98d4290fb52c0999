"""The GPU Operator's clean-up on a real API server: dry it changes nothing, else what it said."""

import json
import shlex
from typing import Any

import pytest
import yaml

from tests.e2e.lab import Lab
from tests.unit.run_script import run

CRD = "clusterpolicies.nvidia.com"
LABEL, ANNOTATION = "nvidia.com/gpu.count", "nvidia.com/gpu-driver-upgrade-enabled"


@pytest.fixture
def leftovers(lab: Lab) -> None:
    """What the operator leaves behind: a CRD, a label and an annotation of the node."""
    names = {"kind": "ClusterPolicy", "plural": "clusterpolicies", "singular": "clusterpolicy"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    manifest = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD},
        "spec": {
            "group": "nvidia.com",
            "scope": "Cluster",
            "names": names,
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    file = lab.scratch / "crd.yaml"
    file.write_text(yaml.safe_dump(manifest))
    lab.kubectl("apply", "-f", str(file))
    lab.kubectl("label", "nodes", "--all", "--overwrite", f"{LABEL}=3")
    lab.kubectl("annotate", "nodes", "--all", "--overwrite", f"{ANNOTATION}=true")


def seen(lab: Lab) -> tuple[list[str], set[str]]:
    """The operator's CRDs, and the keys of NVIDIA's on nodes."""
    found = json.loads(lab.kubectl("get", "crd,node", "-o", "json"))["items"]
    crds = [item["metadata"]["name"] for item in found if item["kind"] != "Node"]
    keys: set[str] = set()
    for item in found:
        metadata: dict[str, Any] = item["metadata"] if item["kind"] == "Node" else {}
        keys |= {*metadata.get("labels", {}), *metadata.get("annotations", {})}
    return crds, {key for key in keys if key.startswith("nvidia.com/")}


@pytest.mark.usefixtures("leftovers")
def test_dry_cleanup_of_the_operator_asks_the_server_and_changes_nothing(lab: Lab) -> None:
    kubectl = shlex.join(lab.cluster.kubectl)
    before = seen(lab)
    assert before == ([CRD], {LABEL, ANNOTATION})
    dry = run("gpu-operator-cleanup.sh", "delete", KUBECTL=kubectl, DRY_RUN="1")
    assert dry.returncode == 0, dry.stderr
    assert f'"{CRD}" deleted (server dry run)' in dry.stdout
    assert "1 labels of nvidia.com removed from the nodes (dry run)" in dry.stdout
    assert seen(lab) == before
    done = run("gpu-operator-cleanup.sh", "delete", KUBECTL=kubectl)
    assert done.returncode == 0, done.stderr
    assert seen(lab) == ([], set())
