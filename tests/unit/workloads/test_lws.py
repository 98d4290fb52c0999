"""`topology: lws`: the LeaderWorkerSet that the program makes."""

import json
from pathlib import Path

import pulumi
import pytest

from tests.unit.stacks import deploy


def test_leader_worker_set_has_one_group_of_all_pods(tmp_path: Path) -> None:
    """The LeaderWorkerSet has one group of all pods. A lost pod is restarted alone, and the workers
    do not wait until the leader is ready.

    Every field that its webhook would fill in is set. `partition` is not among them: definitions
    before 0.7 do not know it, so the API server would refuse it, and later ones fill it in.
    """
    changes = {"topology": "lws", "pods": 4, "processesPerPod": 2, "instance": "b"}
    made = deploy("sandbox-multipod", tmp_path, changes)
    workload = made.one("training-leader-worker-set").inputs
    assert workload["metadata"]["name"] == "train-lws-b"
    spec = workload["spec"]
    group = spec.pop("leaderWorkerTemplate")
    assert spec == {
        "replicas": 1,
        "startupPolicy": "LeaderCreated",
        "networkConfig": {"subdomainPolicy": "Shared"},
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
        },
    }
    assert group.keys() == {"size", "restartPolicy", "workerTemplate"}  # none for the leader
    assert (group["size"], group["restartPolicy"]) == (4, "None")
    (container,) = group["workerTemplate"]["spec"]["containers"]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert variables["PET_MASTER_ADDR"] == "train-lws-b-0.train-lws-b"
    assert variables["PET_NNODES"] == "4"
    assert variables["DISTTRAIN_POD_STAYS"] == "1"
    assert "JOB_COMPLETION_INDEX" not in variables  # the name of the pod has its index
    hand_over = json.loads(made.one("training-hand-over").inputs["stdin"])
    assert hand_over["suspend"] == {"spec": {"replicas": 0}}
    assert hand_over["resume"] == {"spec": {"replicas": 1}}
    replaced = made.one("training-leader-worker-set").request.replaceOnChanges
    assert list(replaced) == ["spec.leaderWorkerTemplate"]


@pytest.mark.parametrize(
    ("instance", "refused"), [("0", True), ("b-0", True), ("10", False), ("0-b", False)]
)
def test_instance_cannot_be_the_workers_ending(
    tmp_path: Path, instance: str, refused: bool
) -> None:
    """An `instance` is refused if the run's StatefulSet would have the name of the workers'
    StatefulSet of the run without that ending. One namespace has room for one of them.
    """
    changes = {"topology": "lws", "instance": instance}
    if not refused:
        deploy("sandbox-multipod", tmp_path, changes)
        return
    with pytest.raises(pulumi.RunError, match=f"instance: '{instance}' .* ends with -0"):
        deploy("sandbox-multipod", tmp_path, changes)
    deploy("sandbox-multipod", tmp_path, {**changes, "topology": "multi-pod"})
