"""The pods of a run are the same under each kind of workload, but for what finds and starts them.

tests/e2e/test_engines.py asks the pods themselves, and of their environment and mounts only a part.
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
# Where node 0 is found, where a pod's index stands, and what the controller makes of its end.
OF_THE_KIND = {
    "PET_MASTER_ADDR",
    "JOB_COMPLETION_INDEX",
    "DISTTRAIN_POD_STAYS",
    "DISTTRAIN_RETRY_FROM_128",
}
ONE_FOR_ALL = "one for all"


def pods_of(value: Any) -> Iterator[dict[str, Any]]:
    """All pod templates of a run's training in some manifests."""
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
    """The pod without what its kind of workload decides."""
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
    """The pod templates of a run: two where node 0 has one of its own."""
    deployment = deploy("sandbox-multipod", tmp_path, {**SETTINGS, "topology": topology})
    inputs = [each.inputs for each in deployment.resources if each.type.startswith("kubernetes:")]
    return list(pods_of(inputs))


@pytest.mark.parametrize(
    "topology", [name for name, kind in WORKLOADS.items() if kind.several_pods]
)
def test_pods_of_each_kind_are_those_of_the_reference(topology: str, tmp_path: Path) -> None:
    """Variables, mounts, shared memory, requests, rights, probe, labels and time to save."""
    (reference,) = made(REFERENCE, tmp_path)
    found = made(topology, tmp_path)
    assert found
    for pod in found:
        assert in_common(pod) == in_common(reference)
