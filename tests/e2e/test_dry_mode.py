"""The GPU Operator's clean-up on a real API server does what its dry run has announced."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from infra.kube.names import OWNER_LABEL
from infra.platform.gpu_operator_definitions import chart_definitions
from tests.crds import definition
from tests.e2e.lab import Lab
from tests.unit.run_script import run

CRD, OTHERS = "clusterpolicies.nvidia.com", "nodefeatures.nfd.k8s-sigs.io"
CRDS = " ".join(chart_definitions("v26.3.3"))
BROUGHT = (CRD, "nodefeaturerules.nfd.k8s-sigs.io")
LABEL, ANNOTATION = "nvidia.com/gpu.count", "nvidia.com/gpu-driver-upgrade-enabled"
NAMESPACE = "gpu-operator"


def define(lab: Lab, name: str) -> None:
    """Make a CustomResourceDefinition of that name, of which there are no objects."""
    file = lab.scratch / f"{name}.yaml"
    file.write_text(yaml.safe_dump(definition(name)))
    lab.kubectl("apply", "-f", str(file))


def cleanup(lab: Lab, action: str, **more: str) -> str:
    """Return the output of the clean-up script."""
    kubectl = shlex.join(lab.cluster.kubectl)
    variables = {"KUBECTL": kubectl, "NAMESPACE": NAMESPACE, "CRDS": CRDS}
    done = run("gpu-operator-cleanup.sh", action, **variables, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def leftovers(lab: Lab) -> Iterator[None]:
    """Make what the operator leaves behind: two definitions, and a label and an annotation of the
    node.

    One more definition was there before the operator.
    """
    lab.kubectl("create", "namespace", NAMESPACE)
    lab.kubectl("label", "namespace", NAMESPACE, f"{OWNER_LABEL}=ours")  # as the stack's has it
    define(lab, OTHERS)
    cleanup(lab, "create")
    for name in BROUGHT:
        define(lab, name)
    lab.kubectl("label", "nodes", "--all", "--overwrite", f"{LABEL}=3")
    lab.kubectl("annotate", "nodes", "--all", "--overwrite", f"{ANNOTATION}=true")
    yield
    lab.kubectl("delete", "crd", OTHERS)
    lab.kubectl("delete", "namespace", NAMESPACE)


def seen(lab: Lab) -> tuple[list[str], set[str]]:
    """Return the names of the cluster's definitions, and the keys of NVIDIA's on nodes."""
    found = json.loads(lab.kubectl("get", "crd,node", "-o", "json"))["items"]
    crds = [item["metadata"]["name"] for item in found if item["kind"] != "Node"]
    keys: set[str] = set()
    for item in found:
        metadata: dict[str, Any] = item["metadata"] if item["kind"] == "Node" else {}
        keys |= {*metadata.get("labels", {}), *metadata.get("annotations", {})}
    return crds, {key for key in keys if key.startswith("nvidia.com/")}


@pytest.mark.usefixtures("leftovers")
def test_dry_cleanup_of_the_operator_asks_the_server_and_changes_nothing(lab: Lab) -> None:
    """A dry run of the clean-up asks the API server what it would delete, and deletes nothing.

    The clean-up itself then deletes just that. A definition that was there before the operator
    stays.
    """
    before = seen(lab)
    assert before == ([CRD, *sorted((OTHERS, BROUGHT[1]))], {LABEL, ANNOTATION})
    said = cleanup(lab, "delete", DRY_RUN="1")
    for name in BROUGHT:
        assert f'"{name}" deleted (server dry run)' in said
    assert OTHERS not in said
    assert "1 labels removed from the nodes (dry run)" in said
    assert seen(lab) == before
    cleanup(lab, "create")  # A second `up` does this too. Only the first one notes what is there.
    cleanup(lab, "delete")
    assert seen(lab) == ([OTHERS], set())
