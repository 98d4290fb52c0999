"""The pod that a preview tries on a real API server, under rules that look at its owner."""

from collections.abc import Iterator

import pytest

from infra.kube.runs.pods_findings import RunPods, pods_findings
from infra.kube.workload import Workload
from infra.workloads import WORKLOADS
from tests.kube.lab import Json, Lab, wait_for
from tests.kube.policies import BINDINGS, POLICIES, refusal
from tests.kube.pool import pod

SAID = "a pod needs an owner"


@pytest.fixture(scope="module")
def owned(lab: Lab) -> Iterator[str]:
    """A namespace in which only pods with an owner are accepted."""
    name = lab.namespace()
    rule = {"expression": "size(object.metadata.?ownerReferences.orValue([])) > 0", "message": SAID}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    kinds = {"resourceRules": [{**pods, "resources": ["pods"]}]}
    spec: Json = {"failurePolicy": "Fail", "matchConstraints": kinds, "validations": [rule]}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    bound = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    of_api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    lab.api.create(POLICIES, {**of_api, "kind": "ValidatingAdmissionPolicy", "spec": spec})
    lab.api.create(BINDINGS, {**of_api, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound})
    wait_for("the rule to hold", lambda: SAID in refusal(lab, name, pod({"cpu": "1"}, {})))
    yield name
    lab.api.delete(f"{BINDINGS}/{name}", {})
    lab.api.delete(f"{POLICIES}/{name}", {})


@pytest.mark.parametrize("topology", WORKLOADS)
def test_rule_against_bare_pods_refuses_no_run(lab: Lab, owned: str, topology: str) -> None:
    """A cluster that refuses pods without an owner accepts those of a run, and preview says so."""
    kind = WORKLOADS[topology]
    itself = Workload(kind.api_version, kind.kind, "train-any")
    run = RunPods(owned, pod({"cpu": "1"}, {}), 1, grows=True, itself=itself)
    assert pods_findings(lab.api, run).problems == []
