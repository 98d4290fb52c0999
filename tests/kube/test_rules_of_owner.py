"""Pods keep rules that a cluster's owner may have for a namespace, on a real API server.

Clusters check such rules with Kyverno or Gatekeeper; admission policies of Kubernetes stand in for
them here, and a webhook with Istio's selectors stands in for Istio. All requests are dry runs, so
nothing is made.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from infra.kube.api_server.dry_run import WebhookError, checked
from infra.kube.api_server.read_only import read_only_api
from infra.kube.files.task_pod import TaskPod, pod_manifest
from infra.kube.objects import Json
from infra.kube.paths import PODS
from infra.workloads import WORKLOADS
from tests.kube.lab import PROBE_IMAGE, Lab, wait_for
from tests.kube.policies import BINDINGS, POLICIES, refusal
from tests.unit.stacks import Deployment, deploy

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SETTINGS = {
    "podLabels": {"team": "ml"},
    "podAnnotations": {"cost-center": "7"},
    "cpuLimitPerRank": "1",
    "memoryLimitPerRank": "2Gi",
}
CONTAINERS = "object.spec.containers + object.spec.?initContainers.orValue([])"
RULES = {
    "a label": "'team' in object.metadata.?labels.orValue({})",
    "an annotation": "'cost-center' in object.metadata.?annotations.orValue({})",
    "no latest": "variables.all.all(c, c.image.contains(':') && !c.image.endsWith(':latest'))",
    "requests": (
        "variables.all.all(c, ['cpu', 'memory'].all(r, r in c.?resources.?requests.orValue({})))"
    ),
    "limits": (
        "variables.all.all(c, ['cpu', 'memory'].all(r, r in c.?resources.?limits.orValue({})))"
    ),
    "no folder of the node": "object.spec.?volumes.orValue([]).all(v, !has(v.hostPath))",
    "no network of the node": "!object.spec.?hostNetwork.orValue(false)",
    "no token": "!object.spec.?automountServiceAccountToken.orValue(true)",
}
BARE: Json = {
    "kind": "Pod",
    "metadata": {"labels": {}},
    "spec": {"containers": [{"name": "a", "image": "a"}]},
}


@pytest.fixture(scope="module")
def strict(lab: Lab) -> Iterator[str]:
    """Yield a namespace in which all of RULES hold."""
    name = lab.namespace()
    rules = [{"expression": rule, "message": said} for said, rule in RULES.items()]
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    kinds = {"resourceRules": [{**pods, "resources": ["pods"]}]}
    spec: Json = {"failurePolicy": "Fail", "matchConstraints": kinds, "validations": rules}
    spec["variables"] = [{"name": "all", "expression": CONTAINERS}]
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    bound = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    of_api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    lab.api.create(POLICIES, {**of_api, "kind": "ValidatingAdmissionPolicy", "spec": spec})
    lab.api.create(BINDINGS, {**of_api, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound})
    # The API server takes a moment until a new policy holds.
    wait_for("the rules to hold", lambda: refusal(lab, name, BARE))
    yield name
    lab.api.delete(f"{BINDINGS}/{name}", {})
    lab.api.delete(f"{POLICIES}/{name}", {})


@pytest.fixture(scope="module")
def meshed(lab: Lab) -> Iterator[str]:
    """Yield a namespace with a webhook that has Istio's selectors and never answers.

    So a pod into which Istio would put its sidecar is refused, and other pods are accepted.
    """
    name = lab.namespace()
    lab.api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {"mesh-of-test": name}}})
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    inject = {"key": "sidecar.istio.io/inject", "operator": "NotIn", "values": ["false"]}
    webhook = {
        "name": "namespace.sidecar-injector.istio.io",
        "clientConfig": {"url": "https://127.0.0.1:9/inject"},
        "rules": [{**pods, "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"mesh-of-test": name}},
        "objectSelector": {"matchExpressions": [inject]},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
    }
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    lab.api.create(WEBHOOKS, {**api, "metadata": {"name": name}, "webhooks": [webhook]})
    wait_for("the webhook to be asked", lambda: asks_mesh(lab, name, BARE))
    yield name
    lab.api.delete(f"{WEBHOOKS}/{name}", {})


def asks_mesh(lab: Lab, namespace: str, pod: Json) -> bool:
    """Return whether the API server asks the webhook, which does not answer, about this pod."""
    metadata = {**pod["metadata"], "name": "p"}
    with read_only_api(lab.access(), 20.0) as api:
        try:
            checked(api, PODS.format(namespace), {"apiVersion": "v1", **pod, "metadata": metadata})
        except WebhookError as reason:
            return "namespace.sidecar-injector.istio.io" in str(reason)
    return False


def templates(value: object) -> Iterator[Json]:
    """Yield all pod templates in some manifests, with labels that the API server accepts."""
    if isinstance(value, list):
        for each in cast(list[object], value):
            yield from templates(each)
    elif isinstance(value, dict):
        item = cast(dict[str, Any], value)
        if "containers" in (item.get("spec") or {}):
            # The account of the pod would come with other objects of the stack, which are not made
            # here.
            spec = {k: v for k, v in item["spec"].items() if k != "serviceAccountName"}
            labels = {**item["metadata"]["labels"], "disttrain.dev/owner": "me"}
            metadata = {**item["metadata"], "labels": labels}
            pod = {"kind": "Pod", "metadata": metadata, "spec": spec}
            # The engine's protocol makes floating-point numbers of whole ones.
            yield json.loads(json.dumps(pod), parse_float=lambda text: int(float(text)))
            return
        for each in item.values():
            yield from templates(each)


def pods_of(made: Deployment) -> list[Json]:
    """Return the pods of the training and of the data set, and one as commands start it."""
    inputs = [each.inputs for each in made.resources if each.type.startswith("kubernetes:")]
    placement = yaml.safe_load(str(made.outputs["podPlacement"]))
    command = TaskPod(
        "sample", "me", "any", PROBE_IMAGE, ("true",), "claim", 60, placement=placement
    )
    manifest = pod_manifest(command, "p")
    marks = {key: manifest["metadata"][key] for key in ("labels", "annotations")}
    return [*templates(inputs), {"kind": "Pod", "metadata": marks, "spec": manifest["spec"]}]


@pytest.mark.parametrize("topology", [kind.name for kind in WORKLOADS.values()])
def test_pods_keep_rules_and_stay_unmeshed(
    lab: Lab, strict: str, meshed: str, tmp_path: Path, topology: str
) -> None:
    """The pods of a run, of its data set and of commands keep the rules, and get no sidecar of
    Istio.
    """
    pods = pods_of(deploy("sandbox-multipod", tmp_path, {"topology": topology, **SETTINGS}))
    assert len(pods) >= 3
    for pod in pods:
        assert refusal(lab, strict, pod) == ""
        assert not asks_mesh(lab, meshed, pod)


def test_pods_that_watch_machines_keep_rules(lab: Lab, strict: str, tmp_path: Path) -> None:
    """The pods of lostNodes and nodeHealth are accepted where a policy demands a label of each."""
    watching = {"lostNodes": "replace", "nodeHealth": "report"}
    made = deploy("sandbox", tmp_path, {**watching, **SETTINGS})
    for name in ("lost-nodes-deployment", "node-health-daemon-set"):
        (pod,) = templates(made.one(name).inputs)
        assert refusal(lab, strict, pod) == ""


def test_pod_without_marks_is_refused(lab: Lab, strict: str, meshed: str) -> None:
    """A pod without the wanted marks is refused. This shows that the rules and the webhook work.

    Without this test, the others would pass with rules that hold nowhere.
    """
    assert "denied request: a label" in refusal(lab, strict, BARE)
    assert asks_mesh(lab, meshed, BARE)
