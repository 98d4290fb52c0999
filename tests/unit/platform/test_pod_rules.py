"""The rules for pods: each fault breaks only its own rule, and the pods of this project break
none.
"""

import json
import re
from pathlib import Path
from unittest.mock import patch

import pytest

from infra.kube.api_server.findings import Findings
from infra.kube.files.task_pod import TaskPod, pod_manifest
from infra.kube.runs.pods_findings import RunPods
from infra.platform.pod_policy import PodPolicyArgs, binding, policy
from infra.platform.pod_rules import RULES
from tests.unit.pods import BREAKS, broken, broken_rules, good
from tests.unit.stacks import PROJECT, STACKS, deploy

KINDS = ("kubernetes:batch/v1:Job", "kubernetes:apps/v1:StatefulSet")


@pytest.mark.parametrize("case", BREAKS)
def test_each_fault_breaks_its_rule_alone(case: str) -> None:
    assert [rule.id for rule in broken_rules(broken(case))] == [BREAKS[case][0]]


def test_every_rule_has_a_fault_that_breaks_it() -> None:
    """Each rule has a fault in these tests that breaks it, and the good pod breaks none."""
    assert broken_rules(good()) == []
    assert {id for id, _ in BREAKS.values()} == {rule.id for rule in RULES}


def test_network_profile_may_say_that_it_needs_the_host() -> None:
    """A pod may use the network of the host if an annotation names the network profile that needs
    it.
    """
    pod = broken("host network")
    pod["metadata"]["annotations"] = {"disttrain.dev/host-network": "roce"}
    assert broken_rules(pod) == []


@pytest.mark.parametrize("stack", STACKS)
def test_pods_of_every_stack_keep_all_rules(stack: str, tmp_path: Path) -> None:
    several: dict[str, object] = {"topology": "indexed-job"}
    made = deploy(stack, tmp_path, several if "multi" in stack else {})
    found = [resource for kind in KINDS for resource in made.of_type(kind)]
    assert len(found) == 2
    for resource in found:
        assert broken_rules(resource.inputs["spec"]["template"]) == [], resource.name


@pytest.mark.parametrize("kind", ["multi-pod", "jobset"])
def test_pod_of_the_question_keeps_all_rules(kind: str, tmp_path: Path) -> None:
    """The pod by which `up` asks the cluster whether pods would be accepted breaks no rule.
    Otherwise `up` would be refused with `podPolicy: deny`.
    """
    asked: list[RunPods] = []

    def ask(*given: object) -> Findings:
        (pods,) = (each for each in given if isinstance(each, RunPods))
        asked.append(pods)
        return Findings()

    with patch("tests.unit.stacks.ANSWER", ask):
        deploy("sandbox", tmp_path, {"topology": kind, "podPolicy": "deny"})
    (pods,) = asked
    assert broken_rules(json.loads(json.dumps(pods.pod))) == []


def test_pod_beside_the_training_keeps_all_rules(tmp_path: Path) -> None:
    """The pod that gives up the pods of lost machines breaks no rule."""
    made = deploy("sandbox", tmp_path, {"topology": "indexed-job", "lostNodes": "replace"})
    (deployment,) = made.of_type("kubernetes:apps/v1:Deployment")
    assert broken_rules(deployment.inputs["spec"]["template"]) == []


def test_pod_that_watches_a_machine_keeps_all_rules(tmp_path: Path) -> None:
    """The pod that watches a machine breaks no rule, because it says by an annotation that it reads
    the kernel's log. Without the annotation it breaks two.
    """
    made = deploy("sandbox", tmp_path, {"nodeHealth": "cordon"})
    (daemon_set,) = made.of_type("kubernetes:apps/v1:DaemonSet")
    template = daemon_set.inputs["spec"]["template"]
    assert broken_rules(template) == []
    del template["metadata"]["annotations"]["disttrain.dev/kernel-log"]
    assert {rule.id for rule in broken_rules(template)} == {"few-capabilities", "not-root"}


def test_pods_of_commands_keep_all_rules() -> None:
    """The pod that a command of `./disttrain` starts breaks no rule."""
    pod = TaskPod("sample", "me", "ns", "trainer:1", ("python3",), "claim", 60)
    assert broken_rules(pod_manifest(pod, "x")) == []


def test_policy_is_a_choice_of_the_platform(tmp_path: Path) -> None:
    """The setting `podPolicy` makes the cluster apply the rules to pods; without it no policy is
    made.
    """
    asked = deploy("dev", tmp_path, {"podPolicy": "warn"})
    spec = asked.one("pod-policy-binding").inputs["spec"]
    assert spec["validationActions"] == ["Warn"]
    assert spec["policyName"] == asked.one("pod-policy-rules").inputs["metadata"]["name"]
    assert not deploy("dev", tmp_path).of_type("disttrain:infra:PodPolicy")


def test_policy_holds_in_the_namespace_of_the_platform_alone() -> None:
    """The policy holds only in the platform's namespace, and has every rule."""
    args = PodPolicyArgs("team-a", "dev", "me", "deny")
    labels = binding(args)["spec"]["matchResources"]["namespaceSelector"]["matchLabels"]
    assert labels == {"kubernetes.io/metadata.name": "team-a"}
    assert len(policy(args)["spec"]["validations"]) == len(RULES) >= 12


def test_page_on_security_lists_every_rule() -> None:
    """`docs/security.md` lists every rule for pods, with its description, in the order of the
    program.
    """
    page = (PROJECT / "docs" / "security.md").read_text()
    listed = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", page, re.M)
    assert [row for row in listed if row[0] in {rule.id for rule in RULES}] == [
        (rule.id, rule.about) for rule in RULES
    ]
