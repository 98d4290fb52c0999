"""The rules for pods on a real API server, which must give the same answers as in Python."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from infra.kube.files.task_pod import TaskPod, running
from infra.platform.pod_policy import PodPolicyArgs, binding, policy
from infra.platform.pod_rules import RULES
from tests.kube.lab import Lab, Run, wait_for
from tests.kube.policies import BINDINGS, POLICIES, refusal
from tests.kube.python_image import PYTHON_IMAGE
from tests.unit.pods import BREAKS, broken, good


@pytest.fixture(scope="module")
def guarded(lab: Lab) -> Iterator[str]:
    """Yield a namespace in which the rules hold."""
    namespace = lab.namespace()
    args = PodPolicyArgs(namespace, "dev", "me", "deny")
    lab.api.create(POLICIES, policy(args))
    lab.api.create(BINDINGS, binding(args))
    # The API server takes a moment until a new policy holds.
    wait_for("the rules to hold", lambda: refusal(lab, namespace, broken("root")))
    yield namespace
    lab.api.delete(f"{BINDINGS}/{namespace}-pods", {})
    lab.api.delete(f"{POLICIES}/{namespace}-pods", {})


@pytest.mark.parametrize("case", BREAKS)
def test_each_fault_is_refused_by_its_rule(lab: Lab, guarded: str, case: str) -> None:
    """A pod that breaks a rule is refused with the rule's text, which says what has to hold and
    why.
    """
    id = BREAKS[case][0]
    (rule,) = [rule for rule in RULES if rule.id == id]
    assert f"{id}: {rule.about}" in refusal(lab, guarded, broken(case))


def test_good_pod_is_taken_and_other_namespaces_are_free(lab: Lab, guarded: str) -> None:
    assert refusal(lab, guarded, good()) == ""
    assert refusal(lab, lab.namespace(), broken("root")) == ""


def test_policy_has_no_expression_with_a_type_error(lab: Lab, guarded: str) -> None:
    """The API server, which checks the types of the expressions, reports no warning about them."""

    def status() -> dict[str, Any]:
        item = lab.api.get(f"{POLICIES}/{guarded}-pods") or {}
        return item.get("status", {})

    wait_for("the types to be checked", lambda: "typeChecking" in status())
    assert status()["typeChecking"].get("expressionWarnings", []) == []


def test_pods_of_commands_run_where_the_rules_hold(lab: Lab, guarded: str, claim: Run) -> None:
    args = PodPolicyArgs(claim.namespace, "dev", "me", "deny")
    lab.api.create(POLICIES, policy(args))
    lab.api.create(BINDINGS, binding(args))
    try:
        wait_for("the rules to hold", lambda: refusal(lab, claim.namespace, broken("root")))
        pod = TaskPod(
            "look",
            claim.owner,
            claim.namespace,
            PYTHON_IMAGE,
            ("python3", "-c", "import time; time.sleep(600)"),
            str(claim.more["claim"]),
            600,
        )
        with running(lab.api, replace(pod, read_only=True)):
            pass
    finally:
        lab.api.delete(f"{BINDINGS}/{claim.namespace}-pods", {})
        lab.api.delete(f"{POLICIES}/{claim.namespace}-pods", {})
