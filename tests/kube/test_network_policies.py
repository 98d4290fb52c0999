"""What is said of a run's pods in a namespace with NetworkPolicies, on a real API server."""

import re
from pathlib import Path
from typing import Any

import yaml

from infra.kube.api_server.findings import Findings
from infra.kube.pods.network_policies import POLICIES, network_findings
from infra.kube.runs.pods_findings import RunPods, pods_findings
from infra.labels import labels
from tests.kube.accounts import viewer_of
from tests.kube.lab import PROBE_IMAGE, PROJECT, Json, Lab

POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": labels("training")},
    "spec": {"containers": [{"name": "trainer", "image": PROBE_IMAGE}]},
}
DENY = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def make(lab: Lab, namespace: str, name: str, spec: dict[str, Any]) -> None:
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    lab.api.create(POLICIES.format(namespace), {**kind, "metadata": {"name": name}, "spec": spec})


def documented() -> dict[str, Any]:
    """Return the policy that docs/clusters.md recommends."""
    page = (PROJECT / "docs" / "clusters.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?kind: NetworkPolicy.*?)```", page, re.DOTALL)
    return yaml.safe_load(block)


def notes(lab: Lab, namespace: str, pods: int = 2) -> list[str]:
    """Return what is said of NetworkPolicies about a run with this many pods."""
    found = pods_findings(lab.api, RunPods(namespace, POD, pods, grows=True))
    assert found.problems == []
    return [note for note in found.notes if "NetworkPolicy" in note]


def test_policy_that_denies_is_named(lab: Lab) -> None:
    """A policy that keeps the pods of a run from each other is named with what it blocks.

    Nothing is said once the policy of docs/clusters.md is there, or of a run with a single pod.
    """
    namespace = lab.namespace()
    assert notes(lab, namespace) == []
    make(lab, namespace, "default-deny", DENY)
    (said,) = notes(lab, namespace)
    assert said.startswith(
        f"namespace {namespace} does not let the run's pods accept connections of each other "
        "(NetworkPolicy default-deny); connect to each other (NetworkPolicy default-deny); look "
        "up each other's names (DNS) (NetworkPolicy default-deny). "
    )
    assert notes(lab, namespace, pods=1) == []
    make(lab, namespace, "disttrain", documented()["spec"])
    assert notes(lab, namespace) == []


def test_nothing_is_said_without_the_right(lab: Lab, tmp_path: Path) -> None:
    """Nothing is said of NetworkPolicies to users who may not list them, because nothing is known
    then.
    """
    namespace = lab.namespace()
    make(lab, namespace, "default-deny", DENY)
    somebody = viewer_of(lab, namespace, tmp_path, "system:basic-user", "rolebinding")
    assert network_findings(somebody, namespace, POD, 2) == Findings()
    assert network_findings(lab.api, namespace, POD, 2).notes
