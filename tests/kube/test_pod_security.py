"""Pods of a stack fit a namespace that enforces Kubernetes' Pod Security level `restricted`.

The API server is asked whether it would accept them; nothing is made.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from infra.kube.errors import ApiError
from infra.kube.files.task_pod import TaskPod, pod_manifest
from infra.kube.objects import Json
from infra.workloads import WORKLOADS
from tests.kube.lab import PROBE_IMAGE, Lab, wait_for
from tests.unit.stacks import Deployment, deploy

ENFORCE = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}


@pytest.fixture(scope="module")
def namespace(lab: Lab) -> str:
    """Return a namespace that enforces the level."""
    made = lab.namespace()
    lab.api.patch(f"/api/v1/namespaces/{made}", ENFORCE)
    # Pods are judged by the labels that the API server has seen, a moment after they have changed.
    wait_for("the level to hold", lambda: is_refused(lab, made))
    return made


def as_root(namespace: str) -> Json:
    """Return the spec of a pod that may run as root."""
    pod = TaskPod("sample", "owner", namespace, PROBE_IMAGE, ("true",), "disttrain-pvc", 60)
    spec = pod_manifest(pod, "p")["spec"]
    spec["securityContext"]["runAsNonRoot"] = False
    return spec


def is_refused(lab: Lab, namespace: str) -> bool:
    try:
        take(lab, namespace, as_root(namespace))
    except ApiError as reason:
        return "violates PodSecurity" in str(reason)
    return False


def pod_specs(within: object) -> Iterator[Json]:
    """Yield the spec of every pod in an object: each part that has containers."""
    if isinstance(within, dict):
        item = cast(dict[str, Any], within)
        if isinstance(item.get("containers"), list):
            yield item
        for part in item.values():
            yield from pod_specs(part)
    elif isinstance(within, list):
        for part in cast(list[object], within):
            yield from pod_specs(part)


def take(lab: Lab, namespace: str, spec: Json) -> None:
    """Raise ApiError if the API server would not accept a pod with this spec."""
    # The account of the pod would come with other objects of the stack, which are not made here.
    plain = {key: value for key, value in spec.items() if key != "serviceAccountName"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": plain}
    path = f"/api/v1/namespaces/{namespace}/pods"
    # The engine's protocol makes floating-point numbers of whole ones.
    whole = json.loads(json.dumps(pod), parse_float=lambda text: int(float(text)))
    lab.api.request("POST", path, whole, query={"dryRun": "All"})


def objects(made: Deployment) -> Iterator[tuple[str, Json]]:
    for resource in made.resources:
        if resource.type.startswith("kubernetes:"):
            yield resource.name, resource.inputs


@pytest.mark.parametrize("topology", [kind.name for kind in WORKLOADS.values()])
def test_pods_of_a_stack_keep_to_the_restricted_level(
    lab: Lab, namespace: str, tmp_path: Path, topology: str
) -> None:
    """The pods of the training in every topology, of the data set and of the platform fit it."""
    stacks = {"sandbox": {"lostNodes": "replace"}, "sandbox-multipod": {"topology": topology}}
    taken: set[tuple[str, str]] = set()
    for stack, changes in stacks.items():
        for name, item in objects(deploy(stack, tmp_path, changes)):
            for spec in pod_specs(item):
                take(lab, namespace, spec)
                taken.add((stack, name))
    assert {("sandbox", "dataset-job"), ("sandbox", "lost-nodes-deployment")} <= taken
    trainings = [name for stack, name in taken if stack != "sandbox" and name != "dataset-job"]
    assert trainings, taken


def test_pods_of_commands_keep_to_the_restricted_level(lab: Lab, namespace: str) -> None:
    pod = TaskPod("sample", "owner", namespace, PROBE_IMAGE, ("true",), "disttrain-pvc", 60)
    take(lab, namespace, pod_manifest(pod, "p")["spec"])


def test_pod_with_more_rights_is_refused_there(lab: Lab, namespace: str) -> None:
    """A pod that may run as root is refused, which shows that the namespace enforces the level."""
    with pytest.raises(ApiError, match='violates PodSecurity "restricted'):
        take(lab, namespace, as_root(namespace))
