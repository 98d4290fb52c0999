"""`topology: pytorchjob`: the PyTorchJob that the program makes."""

from pathlib import Path

import pulumi
import pytest

from tests.unit.stacks import deploy
from trainer.launch.exit_codes import RETRY_VARIABLE


def test_pytorchjob_has_workers_alone_with_ranks_of_ours(tmp_path: Path) -> None:
    """The PyTorchJob has only workers, and its ranks are those of this program. A master would add
    an init container to every worker, whose image has to be pulled.
    """
    changes = {"topology": "pytorchjob", "pods": 4, "processesPerPod": 2}
    made = deploy("sandbox-multipod", tmp_path, changes)
    spec = made.one("training-pytorch-job").inputs["spec"]
    assert spec["nprocPerNode"] == "2"
    assert spec["runPolicy"] == {"cleanPodPolicy": "Running"}
    ((role, workers),) = spec["pytorchReplicaSpecs"].items()
    assert (role, workers["replicas"], workers["restartPolicy"]) == ("Worker", 4, "ExitCode")
    (container,) = workers["template"]["spec"]["containers"]
    assert container["name"] == "pytorch"
    variables = {entry["name"]: entry for entry in container["env"]}
    index = variables["JOB_COMPLETION_INDEX"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert index == "metadata.labels['training.kubeflow.org/replica-index']"
    assert variables[RETRY_VARIABLE]["value"]
    service = made.one("training-service").inputs
    assert service["metadata"]["name"] == variables["PET_MASTER_ADDR"]["value"]
    assert service["spec"]["publishNotReadyAddresses"] is True
    labels = workers["template"]["metadata"]["labels"]
    selector = dict(service["spec"]["selector"])
    assert selector.pop("training.kubeflow.org/replica-index") == "0"
    assert selector.items() <= labels.items()


@pytest.mark.parametrize(
    ("instance", "refused"),
    [("worker-0", True), ("b-worker-12", True), ("worker", False), ("worker-a", False)],
)
def test_instance_cannot_be_a_workers_ending(tmp_path: Path, instance: str, refused: bool) -> None:
    """An `instance` is refused if the run's Service for the pod with index 0 could have the name of
    the Service that the operator makes for a worker of the run with the instance `first`.
    """
    changes = {"topology": "pytorchjob", "instance": instance}
    if not refused:
        deploy("sandbox-multipod", tmp_path, changes)
        return
    with pytest.raises(pulumi.RunError, match=f"instance: '{instance}' .* ends with -worker-"):
        deploy("sandbox-multipod", tmp_path, changes)
    deploy("sandbox-multipod", tmp_path, {**changes, "topology": "multi-pod"})
