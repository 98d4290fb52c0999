"""`topology: trainjob`: the TrainJob that the program makes, and its runtime."""

from pathlib import Path

import pytest

from tests.unit.stacks import deploy


def test_trainjob_leaves_the_pods_to_its_runtime(tmp_path: Path) -> None:
    """The runtime names no framework, because Trainer would add variables of its own for it. It has
    no `ttlSecondsAfterFinished`, because Trainer would make the removed JobSet again.
    """
    made = deploy("sandbox-multipod", tmp_path, {"topology": "trainjob", "pods": 4})
    # Kubeflow's Python library cannot read a TrainJob if its runtime lacks this label.
    labels = made.one("training-training-runtime").inputs["metadata"]["labels"]
    assert labels["trainer.kubeflow.org/framework"] == "torch"
    runtime = made.one("training-training-runtime").inputs["spec"]
    spec = made.one("training-train-job").inputs["spec"]
    assert spec == {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": "TrainingRuntime",
            "name": "train-trainjob",
        }
    }
    assert runtime["mlPolicy"] == {"numNodes": 4}
    jobset = runtime["template"]["spec"]
    (jobs,) = jobset["replicatedJobs"]
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert (jobs["name"], jobs["template"]["metadata"]["labels"]) == ("node", labels)
    assert "ttlSecondsAfterFinished" not in jobset
    job = jobs["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    found = job["podFailurePolicy"]["rules"]
    rules = [rule["onExitCodes"] for rule in found if "onExitCodes" in rule]
    assert {rule["containerName"] for rule in rules} == {container["name"]} == {"node"}
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert variables["PET_MASTER_ADDR"] == "train-trainjob-node-0-0.train-trainjob"


@pytest.mark.parametrize("pods", [2, 3])
def test_runtime_restarts_as_often_with_any_pods(tmp_path: Path, pods: int) -> None:
    """The `failurePolicy` of the runtime does not depend on the number of pods. Trainer 2.1 and 2.2
    allow no change of it, so `pulumi up` with another number of pods would fail otherwise.
    """
    made = deploy("sandbox-multipod", tmp_path, {"topology": "trainjob", "pods": pods})
    runtime = made.one("training-training-runtime").inputs["spec"]
    assert runtime["template"]["spec"]["failurePolicy"]["maxRestarts"] == 1000


def test_runtime_goes_after_the_trainjob_that_names_it(tmp_path: Path) -> None:
    """The old TrainJob is deleted before its runtime. Trainer's webhook refuses every change of a
    TrainJob without a runtime, also the last one of its deletion, so `up` would wait for its end in
    vain. Another `instance` or `namespace` replaces both.
    """
    made = deploy("sandbox-multipod", tmp_path, {"topology": "trainjob", "instance": "second"})
    runtime, trainjob = (made.one(f"training-{n}") for n in ("training-runtime", "train-job"))
    assert not runtime.request.deleteBeforeReplace
    assert trainjob.request.deleteBeforeReplace  # Two gangs must not write one run.
    assert runtime.urn in trainjob.request.dependencies
