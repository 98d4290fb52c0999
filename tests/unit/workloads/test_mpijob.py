"""`topology: mpijob`: the MPIJob that the program makes."""

from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.labels import REVISION_LABEL
from infra.names import REQUIRED_TOPOLOGY
from infra.workloads.topology_request import GROUP, GROUP_NAME
from tests.unit.stacks import deploy


def test_mpijob_has_a_launcher_that_is_node_0(tmp_path: Path) -> None:
    """The launcher of the MPIJob is node 0, and all pods come from the same template. They differ
    only in the index that the operator writes into their labels.
    """
    changes = {"topology": "mpijob", "pods": 4, "processesPerPod": 2}
    made = deploy("sandbox-multipod", tmp_path, changes)
    spec = made.one("training-mpi-job").inputs["spec"]
    assert (spec["runLauncherAsWorker"], spec["slotsPerWorker"]) == (True, 2)
    assert spec["launcherCreationPolicy"] == "AtStartup"
    assert spec["runPolicy"] == {"backoffLimit": 6, "cleanPodPolicy": "Running"}
    launcher, workers = (spec["mpiReplicaSpecs"][role] for role in ("Launcher", "Worker"))
    assert (launcher["replicas"], launcher["restartPolicy"]) == (1, "Never")
    assert (workers["replicas"], workers["restartPolicy"]) == (3, "OnFailure")
    assert launcher["template"] == workers["template"]
    assert "restartPolicy" not in launcher["template"]["spec"]
    (container,) = launcher["template"]["spec"]["containers"]
    variables = {entry["name"]: entry for entry in container["env"]}
    index = variables["JOB_COMPLETION_INDEX"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert index == "metadata.labels['training.kubeflow.org/replica-index']"
    assert variables["PET_MASTER_ADDR"]["value"] == "train-mpijob-launcher.train-mpijob"
    assert variables["PET_NNODES"]["value"] == "4"


def test_mpijob_of_one_pod_has_no_workers(tmp_path: Path) -> None:
    """An MPIJob of one pod has no entry for workers, because the operator refuses an entry with no
    replicas.
    """
    made = deploy("sandbox", tmp_path, {"topology": "mpijob", "pods": 1})
    roles = made.one("training-mpi-job").inputs["spec"]["mpiReplicaSpecs"]
    assert list(roles) == ["Launcher"]


@pytest.mark.parametrize(("pods", "groups"), [(4, {GROUP: GROUP_NAME}), (1, {})])
def test_launcher_and_workers_share_their_place(
    tmp_path: Path, pods: int, groups: dict[str, str]
) -> None:
    """The launcher and the workers are in one group for Kueue's topology, if there are workers.
    Otherwise Kueue would choose one rack for the launcher and another one for the workers.
    """
    rack = {REQUIRED_TOPOLOGY: "example.com/rack"}
    changes = {"topology": "mpijob", "pods": pods, "podAnnotations": rack}
    made = deploy("sandbox-multipod", tmp_path, changes)
    for role in made.one("training-mpi-job").inputs["spec"]["mpiReplicaSpecs"].values():
        annotations = role["template"]["metadata"]["annotations"]
        asked = {key: text for key, text in annotations.items() if key.startswith("kueue.")}
        assert asked == {**rack, **groups}


def test_retries_of_a_launcher_make_another_workload(tmp_path: Path) -> None:
    """Other retries of the launcher make another workload, because the operator does not change a
    launcher that exists. A negative number is refused.
    """

    def made(**options: int) -> dict[str, Any]:
        given = {"topology": "mpijob", "topologyOptions": options}
        return deploy("sandbox-multipod", tmp_path, given).one("training-mpi-job").inputs

    usual, never = made(), made(launcherRetries=0)
    assert never["spec"]["runPolicy"]["backoffLimit"] == 0
    revisions = {item["metadata"]["labels"][REVISION_LABEL] for item in (usual, never)}
    assert len(revisions) == 2
    with pytest.raises(pulumi.RunError, match=r"launcherRetries: -1 cannot be used"):
        made(launcherRetries=-1)
