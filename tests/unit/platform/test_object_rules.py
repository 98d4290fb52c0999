"""The rules of the policy pack: the stacks of this project keep all of them, and each fault breaks
only its own rule.
"""

from pathlib import Path
from typing import Any

import pytest

from infra.platform.object_rules import OBJECT_RULES
from infra.platform.pod_rules import RULES
from tests.unit.controllers.published import NAME, publishing
from tests.unit.pods import BREAKS, broken
from tests.unit.stacks import PROJECT, STACKS, deploy
from tests.unit.storages.other_storages import CLASS, EXISTING, NFS

LABELS = {"metadata": {"labels": {"disttrain.dev/owner": "me"}}}
VOLUME = "kubernetes:core/v1:PersistentVolume"
SERVICE = "kubernetes:core/v1:Service"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole"
READS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
FAULTS: list[tuple[str, str, dict[str, Any]]] = [
    ("volume-is-kept", VOLUME, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}),
    ("service-is-internal", SERVICE, {"spec": {"type": "LoadBalancer"}}),
    ("role-only-reads", ROLE, {"rules": [{**READS, "verbs": ["get", "patch"]}]}),
    ("role-shows-no-secrets", ROLE, {"rules": [{**READS, "resources": ["secrets"]}]}),
    ("object-names-its-owner", "kubernetes:core/v1:ConfigMap", {"metadata": {"name": "x"}}),
]


def found(type_: str, props: dict[str, Any]) -> list[str]:
    """Return the ids of the rules that the object breaks."""
    return [rule.id for rule in OBJECT_RULES if rule.problems(type_, props)]


@pytest.mark.parametrize("stack", STACKS)
def test_every_stack_keeps_every_rule(stack: str, tmp_path: Path) -> None:
    made = deploy(stack, tmp_path, {} if "multi" in stack else {"podPolicy": "deny"})
    assert {
        r.name: found(r.type, r.inputs) for r in made.resources if found(r.type, r.inputs)
    } == {}


@pytest.mark.parametrize("storage", [NFS, CLASS, EXISTING], ids=["nfs", "class", "existing"])
def test_every_storage_keeps_every_rule(storage: dict[str, object], tmp_path: Path) -> None:
    made = deploy("sandbox", tmp_path, storage)
    assert [r.name for r in made.resources if found(r.type, r.inputs)] == []


@pytest.mark.parametrize(("id", "type_", "props"), FAULTS)
def test_each_fault_breaks_its_rule_alone(id: str, type_: str, props: dict[str, Any]) -> None:
    assert found(type_, {**LABELS, **props}) == [id]


@pytest.mark.parametrize("case", BREAKS)
def test_pods_of_a_workload_are_looked_at(case: str) -> None:
    """The rules for pods also hold for the pods in every kind of workload, and for no object that
    is no workload.
    """
    props = {**LABELS, "spec": {"template": broken(case)}}
    assert found("kubernetes:batch/v1:Job", props) == [BREAKS[case][0]]
    jobs = {**LABELS, "spec": {"replicatedJobs": [{"template": {"spec": props["spec"]}}]}}
    assert found("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", jobs) == [BREAKS[case][0]]
    runtime = {**LABELS, "spec": {"template": {"spec": jobs["spec"]}}}
    trainer = "kubernetes:trainer.kubeflow.org/v1alpha1:TrainingRuntime"
    assert found(trainer, runtime) == [BREAKS[case][0]]
    workers = {**LABELS, "spec": {"pytorchReplicaSpecs": {"Worker": props["spec"]}}}
    assert found("kubernetes:kubeflow.org/v1:PyTorchJob", workers) == [BREAKS[case][0]]
    for role in ("Launcher", "Worker"):
        roles = {**LABELS, "spec": {"mpiReplicaSpecs": {role: props["spec"]}}}
        assert found("kubernetes:kubeflow.org/v2beta1:MPIJob", roles) == [BREAKS[case][0]]
    tasks = {**LABELS, "spec": {"tasks": [{"name": "node", **props["spec"]}]}}
    assert found("kubernetes:batch.volcano.sh/v1alpha1:Job", tasks) == [BREAKS[case][0]]
    group = {**LABELS, "spec": {"leaderWorkerTemplate": {"workerTemplate": broken(case)}}}
    leaders = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
    assert found(leaders, group) == [BREAKS[case][0]]
    assert found("kubernetes:core/v1:ConfigMap", props) == []


def test_role_that_says_so_may_cordon_and_do_no_more() -> None:
    """A role with the annotation for cordoning may patch nodes, and nothing else may be changed by
    it.
    """
    says_so = {"metadata": {**LABELS["metadata"], "annotations": {"disttrain.dev/cordons": "x"}}}
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}
    assert found(ROLE, {**says_so, "rules": [nodes]}) == []
    assert found(ROLE, {**LABELS, "rules": [nodes]}) == ["role-only-reads"]
    for more in ({**nodes, "resources": ["pods"]}, {**nodes, "verbs": ["delete"]}):
        assert found(ROLE, {**says_so, "rules": [more]}) == ["role-only-reads"]


@pytest.mark.parametrize("annotations", [{}, {"disttrain.dev/cordons": "x"}])
def test_role_for_addresses_names_no_resources(annotations: dict[str, str]) -> None:
    """A role for addresses such as /metrics, which has no resources, is judged by its verbs like
    others.
    """
    role = {"metadata": {**LABELS["metadata"], "annotations": annotations}}
    rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    assert found(ROLE, {**role, "rules": [rule]}) == []
    changes = {**rule, "verbs": ["get", "patch"]}
    assert found(ROLE, {**role, "rules": [changes]}) == ["role-only-reads"]


@pytest.mark.parametrize(("id", "type_", "props"), FAULTS)
def test_published_manifests_of_a_controller_are_installed_as_they_are(
    id: str, type_: str, props: dict[str, Any]
) -> None:
    """The published manifests of a controller are installed unchanged, as its chart would be, so
    only the rule about the owner holds for them.
    """
    labels = {"disttrain.dev/controller": "volcano", "disttrain.dev/owner": "me"}
    assert found(type_, {**props, "metadata": {"labels": labels}}) == []
    del labels["disttrain.dev/owner"]
    assert found(type_, {**props, "metadata": {"labels": labels}}) == ["object-names-its-owner"]


def test_controller_by_manifests_keeps_every_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that is installed from its published manifests breaks no rule."""
    with publishing(monkeypatch, tmp_path / "cache"):
        made = deploy("sandbox", tmp_path, {"controllers": [NAME], "topology": "none"})
    assert [r.name for r in made.resources if found(r.type, r.inputs)] == []


def test_readme_of_the_pack_lists_its_own_rules() -> None:
    """`policy/README.md` lists each rule that is not one of the rules for pods."""
    page = (PROJECT / "policy" / "README.md").read_text()
    own = [rule for rule in OBJECT_RULES if rule.id not in {rule.id for rule in RULES}]
    assert [f"| `{rule.id}` | {rule.about} |" in page for rule in own] == [True] * len(own)


def test_every_rule_has_a_fault_that_breaks_it() -> None:
    """Each rule has a fault in these tests that breaks it."""
    named = {id for id, _, _ in FAULTS} | {rule.id for rule in RULES}
    assert named == {rule.id for rule in OBJECT_RULES}
    assert len(OBJECT_RULES) >= 12
