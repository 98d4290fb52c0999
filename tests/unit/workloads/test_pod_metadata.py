"""Labels and annotations that make other programs of the cluster leave the pods of a run alone."""

from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from infra.kube.files.task_pod import TaskPod, pod_manifest
from infra.workloads import WORKLOADS
from tests.unit.program.parts import templates, training_template
from tests.unit.stacks import Deployment, deploy

MESH_LABELS = {"sidecar.istio.io/inject": "false", "istio.io/dataplane-mode": "none"}
MESH_ANNOTATIONS = {"linkerd.io/inject": "disabled"}
STAYS = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction": "true",
}


def marks_of(value: object, component: str) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Return the labels and annotations of each pod template of this component in some
    manifests.
    """
    found: list[tuple[dict[str, str], dict[str, str]]] = []
    if isinstance(value, list):
        for each in cast(list[object], value):
            found += marks_of(each, component)
    if isinstance(value, dict):
        item = cast(dict[str, Any], value)
        labels = (item.get("metadata") or {}).get("labels") or {}
        is_pod = "containers" in (item.get("spec") or {})
        if is_pod and labels.get("app.kubernetes.io/component") == component:
            return [(labels, item["metadata"].get("annotations", {}))]
        for each in item.values():
            found += marks_of(each, component)
    return found


def of_stack(made: Deployment, component: str) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Return the labels and annotations of this component's pods in a stack."""
    inputs = [each.inputs for each in made.resources if each.type.startswith("kubernetes:")]
    return marks_of(inputs, component)


@pytest.mark.parametrize("topology", WORKLOADS)
def test_pods_of_every_topology_stay_alone(topology: str, tmp_path: Path) -> None:
    """No mesh puts a proxy into the pods of a run and of its data set, and no program moves these
    pods.
    """
    made = deploy("sandbox-multipod", tmp_path, {"topology": topology})
    for component in ("training", "dataset"):
        found = of_stack(made, component)
        assert found, component
        for labels, annotations in found:
            assert labels.items() >= MESH_LABELS.items()
            assert annotations.items() >= {**MESH_ANNOTATIONS, **STAYS}.items()


def test_own_labels_and_annotations_win(tmp_path: Path) -> None:
    """The user's own labels and annotations replace the defaults. An empty text removes a default
    annotation, because the descheduler asks only whether its annotation exists.
    """
    karpenter, autoscaler, descheduler = STAYS
    changes = {
        "podLabels": {"team": "ml", "sidecar.istio.io/inject": "true"},
        "podAnnotations": {karpenter: "false", autoscaler: "true", descheduler: "", "note": ""},
    }
    made = deploy("sandbox-multipod", tmp_path, changes)
    assert len(templates(made)) == 2
    for template in templates(made):
        labels, annotations = template["metadata"]["labels"], template["metadata"]["annotations"]
        assert (labels["team"], labels["sidecar.istio.io/inject"]) == ("ml", "true")
        assert annotations[karpenter] == "false"
        assert annotations[autoscaler] == "true"
        assert annotations["note"] == ""
        assert descheduler not in annotations


@pytest.mark.parametrize(
    "selector", [{"karpenter.sh/capacity-type": "spot"}, {"cloud.google.com/gke-spot": "true"}]
)
def test_pods_on_spot_machines_are_evicted(selector: dict[str, str], tmp_path: Path) -> None:
    """Pods on spot machines have no annotation against eviction. Otherwise Karpenter would not
    evict them from a machine that goes, and they would not save.
    """
    made = deploy("sandbox-multipod", tmp_path, {"nodeSelector": selector})
    annotations = training_template(made)["metadata"]["annotations"]
    assert not STAYS.keys() & annotations.keys()
    assert annotations.items() >= MESH_ANNOTATIONS.items()


def test_pods_of_commands_have_own_labels(tmp_path: Path) -> None:
    """The pods of commands have the user's labels and annotations and those against meshes. A
    cluster may demand labels of every pod, and a mesh may put a proxy into every pod.
    """
    changes = {"podLabels": {"team": "ml"}, "podAnnotations": {"cost-center": "7"}}
    made = deploy("sandbox-multipod", tmp_path, changes)
    placement = yaml.safe_load(str(made.outputs["podPlacement"]))
    pod = TaskPod("look", "me", "ml", "image:1", ("true",), "claim", 60, placement=placement)
    manifest = pod_manifest(pod, "p")
    metadata = manifest["metadata"]
    assert metadata["labels"].items() >= {**MESH_LABELS, "team": "ml"}.items()
    assert metadata["labels"]["disttrain.dev/owner"] == "me"
    assert metadata["annotations"] == {**MESH_ANNOTATIONS, "cost-center": "7"}
    assert "metadata" not in manifest["spec"]


@pytest.mark.parametrize(
    "selector", [{}, {"karpenter.sh/capacity-type": "spot"}], ids=["usual", "spot"]
)
def test_empty_text_removes_mark_everywhere(selector: dict[str, str], tmp_path: Path) -> None:
    """An empty text in `podLabels` or `podAnnotations` removes a default label or annotation from
    all pods, also from those of commands and from those on spot machines. No pod gets such an
    annotation with an empty value, because the descheduler asks only whether its annotation exists.
    The user's own labels and annotations may be empty.
    """
    changes = {
        "podLabels": dict.fromkeys(MESH_LABELS, "") | {"team": ""},
        "podAnnotations": dict.fromkeys({**MESH_ANNOTATIONS, **STAYS}, "") | {"note": ""},
        "nodeSelector": selector,
    }
    made = deploy("sandbox-multipod", tmp_path, changes)
    placement = yaml.safe_load(str(made.outputs["podPlacement"]))
    pod = TaskPod("look", "me", "ml", "image:1", ("true",), "claim", 60, placement=placement)
    pods = [*templates(made), pod_manifest(pod, "p")]
    assert len(pods) == 3
    for each in pods:
        labels, annotations = each["metadata"]["labels"], each["metadata"]["annotations"]
        assert not MESH_LABELS.keys() & labels.keys()
        assert not {**MESH_ANNOTATIONS, **STAYS}.keys() & annotations.keys()
        assert (labels["team"], annotations["note"]) == ("", "")
