"""The pods of a run are the same with each kind of workload, except for what finds and starts them.

tests/e2e/test_engines.py asks the pods themselves, but only about a part of their environment and
mounts.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.labels import COMPONENT_LABEL, REVISION_LABEL, WORKLOAD_LABEL
from infra.names import TRAINING
from infra.workloads import WORKLOADS
from tests.unit.stacks import deploy

REFERENCE = "multi-pod"
SETTINGS = {"pods": 4, "podEnvironment": {"GREETING": "hello"}, "shmSize": "2Gi"}
# The address of node 0, the index of a pod, and what the controller does when a pod ends.
OF_THE_KIND = {
    "PET_MASTER_ADDR",
    "JOB_COMPLETION_INDEX",
    "DISTTRAIN_POD_STAYS",
    "DISTTRAIN_RETRY_FROM_128",
}
ONE_FOR_ALL = "one for all"


def pods_of(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all pod templates of a run's training in some manifests."""
    if isinstance(value, list):
        for each in value:
            yield from pods_of(each)
    if not isinstance(value, dict):
        return
    labels = value.get("metadata", {}).get("labels", {})
    if labels.get(COMPONENT_LABEL) == TRAINING and "containers" in value.get("spec", {}):
        yield value
        return
    for each in value.values():
        yield from pods_of(each)


def in_common(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod without what its kind of workload decides."""
    labels = dict(pod["metadata"]["labels"])
    for name in (REVISION_LABEL, WORKLOAD_LABEL):
        labels[name] = ONE_FOR_ALL
    metadata = {**pod["metadata"], "labels": labels}
    spec = {k: v for k, v in pod["spec"].items() if k not in ("restartPolicy", "subdomain")}
    (container,) = spec["containers"]
    env = [each for each in container["env"] if each["name"] not in OF_THE_KIND]
    container = {k: v for k, v in container.items() if k != "ports"}
    spec["containers"] = [{**container, "name": ONE_FOR_ALL, "env": env}]
    return {"metadata": metadata, "spec": spec}


def made(topology: str, tmp_path: Path) -> list[dict[str, Any]]:
    """Return the pod templates of a run. There are two of them if node 0 has a template of its
    own.
    """
    deployment = deploy("sandbox-multipod", tmp_path, {**SETTINGS, "topology": topology})
    inputs = [each.inputs for each in deployment.resources if each.type.startswith("kubernetes:")]
    return list(pods_of(inputs))


@pytest.mark.parametrize(
    "topology", [name for name, kind in WORKLOADS.items() if kind.several_pods]
)
def test_pods_of_each_kind_are_those_of_the_reference(topology: str, tmp_path: Path) -> None:
    """The pods of each kind have the same variables, mounts, shared memory, requests, rights,
    probe, labels and grace period as those of `multi-pod`.
    """
    (reference,) = made(REFERENCE, tmp_path)
    found = made(topology, tmp_path)
    assert found
    for pod in found:
        assert in_common(pod) == in_common(reference)
