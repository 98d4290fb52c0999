"""`topology: multi-pod` and `lws`, which stop a run by setting the number of replicas to zero."""

from pathlib import Path

import pytest

from tests.unit.stacks import Registered, deploy

REPLICAS = {"multi-pod": "training-stateful-set", "lws": "training-leader-worker-set"}


@pytest.mark.parametrize("topology", REPLICAS)
def test_stopped_run_stays_the_same_workload_after_a_refresh(tmp_path: Path, topology: str) -> None:
    """A stopped run is not replaced when the engine sets `replicas` again, as after `pulumi
    refresh`. Otherwise the provider would take the old StatefulSet for the new one and lose it.
    `pulumi.com/patchForce` takes the field back from whoever stopped the run, because a preview of
    a LeaderWorkerSet would fail otherwise.
    """

    def made(pods: int) -> Registered:
        changes = {"topology": topology, "pods": pods}
        return deploy("sandbox-multipod", tmp_path, changes).one(REPLICAS[topology])

    two, three = made(2), made(3)
    annotations = two.inputs["metadata"]["annotations"]
    assert annotations["pulumi.com/patchForce"] == annotations["pulumi.com/skipAwait"] == "true"
    (replaced,) = two.request.replaceOnChanges
    field = replaced.removeprefix("spec.")
    assert field != "replicas"
    # Another number of pods still makes another workload.
    assert two.inputs["spec"][field] != three.inputs["spec"][field]
