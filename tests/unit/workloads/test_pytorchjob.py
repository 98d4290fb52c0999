"""`topology: pytorchjob`: the PyTorchJob that the program makes."""

from pathlib import Path

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
