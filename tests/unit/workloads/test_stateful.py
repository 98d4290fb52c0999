"""`topology: multi-pod` and `lws`: a run that is stopped has an object without replicas."""

from pathlib import Path

import pytest

from tests.unit.stacks import Registered, deploy

REPLICAS = {"multi-pod": "training-stateful-set", "lws": "training-leader-worker-set"}


@pytest.mark.parametrize("topology", REPLICAS)
def test_stopped_run_stays_the_same_workload_after_a_refresh(tmp_path: Path, topology: str) -> None:
    """After `./disttrain stop` and `pulumi refresh` the engine wants to set `replicas` again. A new
    StatefulSet for that was lost: the provider does not wait for the end of the old one, and took
    it for the new one. Of a LeaderWorkerSet already the preview failed, as the field was that of
    whoever had stopped the run."""

    def made(pods: int) -> Registered:
        changes = {"topology": topology, "pods": pods}
        return deploy("sandbox-multipod", tmp_path, changes).one(REPLICAS[topology])

    two, three = made(2), made(3)
    annotations = two.inputs["metadata"]["annotations"]
    assert annotations["pulumi.com/patchForce"] == annotations["pulumi.com/skipAwait"] == "true"
    (replaced,) = two.request.replaceOnChanges
    field = replaced.removeprefix("spec.")
    assert field != "replicas"
    # Another number of pods is another workload all the same.
    assert two.inputs["spec"][field] != three.inputs["spec"][field]
