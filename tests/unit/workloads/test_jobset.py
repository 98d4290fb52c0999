"""`topology: jobset`: the JobSet that the program makes."""

import json
from pathlib import Path

import pulumi
import pytest

from tests.unit.stacks import deploy
from trainer.launch.exit_codes import ExitCode


def test_jobset_restarts_all_pods_and_fails_on_a_fatal_exit(tmp_path: Path) -> None:
    """The JobSet makes all pods again if one fails, and fails at a fatal exit code. Its Job
    replaces no failed pod by itself.
    """
    made = deploy("sandbox-multipod", tmp_path, {"topology": "jobset", "pods": 4})
    spec = made.one("training-job-set").inputs["spec"]
    (jobs,) = spec["replicatedJobs"]
    job = jobs["template"]["spec"]
    assert (jobs["replicas"], job["completionMode"], job["backoffLimit"]) == (1, "Indexed", 0)
    assert (job["completions"], job["parallelism"]) == (4, 4)
    (rule,) = spec["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])
    fails = [rule for rule in job["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    assert [rule["onExitCodes"]["values"] for rule in fails] == [[ExitCode.FATAL]]
    # The JobSet handles an evicted pod, because the Job would wait longer for each new pod.
    evicted = [rule for rule in job["podFailurePolicy"]["rules"] if "onPodConditions" in rule]
    assert [rule["action"] for rule in evicted] == ["Count"]
    assert job["podReplacementPolicy"] == "Failed"
    assert spec["network"]["publishNotReadyAddresses"] is True  # ranks meet before they are ready
    assert spec["failurePolicy"]["restartStrategy"] == "BlockingRecreate"
    pod = job["template"]["spec"]
    variables = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
    service = spec["network"]["subdomain"]
    assert variables["PET_MASTER_ADDR"] == f"train-jobset-{jobs['name']}-0-0.{service}"
    look = json.loads(made.one("training-look").program)
    assert look["group_version"] == "jobset.x-k8s.io/v1alpha2"
    assert look["setting"] == "topology: 'jobset'"
    assert "the cluster serves no" in look["otherwise"]


@pytest.mark.parametrize("pods", [1, 3])
def test_failure_policy_is_the_same_with_any_pods(tmp_path: Path, pods: int) -> None:
    """The failure policy does not depend on the number of pods, because JobSet allows no change of
    it. Otherwise a preview with another number of pods would fail. tests/e2e/test_engines.py
    changes the number of pods on a cluster.
    """
    made = deploy("sandbox-multipod", tmp_path, {"topology": "jobset", "pods": pods})
    policy = made.one("training-job-set").inputs["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 1000


def test_name_leaves_room_for_the_one_of_a_preview(tmp_path: Path) -> None:
    """The name of a JobSet leaves room for the 5 characters that a preview appends and for the 6
    characters of the pods' own endings. Otherwise JobSet's webhook would refuse the preview,
    because the pods' names would be too long for a label.
    """
    longest = {"topology": "jobset", "pods": 1001, "instance": "s" * 26}
    made = deploy("sandbox-multipod", tmp_path, longest).one("training-job-set").inputs
    (jobs,) = made["spec"]["replicatedJobs"]
    assert len(f"{made['metadata']['name']}abcde-{jobs['name']}-0-1000-abcde") == 63
    with pytest.raises(pulumi.RunError, match=r"instance: .* it has 27 characters"):
        deploy("sandbox-multipod", tmp_path, {**longest, "instance": "s" * 27})
