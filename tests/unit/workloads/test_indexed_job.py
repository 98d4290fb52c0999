"""`topology: indexed-job`: the Job that the program makes."""

from pathlib import Path

from tests.unit.stacks import deploy
from trainer.launch.exit_codes import ExitCode


def test_indexed_job_gives_each_pod_an_index_and_a_name(tmp_path: Path) -> None:
    made = deploy("sandbox-multipod", tmp_path, {"topology": "indexed-job", "pods": 4})
    spec = made.one("training-job").inputs["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    service = made.one("training-service").inputs["metadata"]["name"]
    pod = spec["template"]["spec"]
    assert (pod["subdomain"], pod["restartPolicy"]) == (service, "Never")
    variables = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
    assert variables["PET_MASTER_ADDR"] == f"train-indexed-0.{service}"
    assert not made.of_type("kubernetes:apps/v1:StatefulSet")


def test_job_replaces_a_pod_after_its_end_and_counts_no_pod_that_was_asked(tmp_path: Path) -> None:
    """A pod is replaced only after it has ended, because two pods of one index would write the same
    run. A pod that was evicted or asked to stop has saved, so it does not count as a failure.
    """
    made = deploy("sandbox-multipod", tmp_path, {"topology": "indexed-job", "pods": 4})
    spec = made.one("training-job").inputs["spec"]
    assert spec["backoffLimit"] == 400  # Kubernetes' own limit of 6 would soon end a long run
    assert spec["podReplacementPolicy"] == "Failed"
    fatal, evicted, asked = spec["podFailurePolicy"]["rules"]
    assert (fatal["action"], fatal["onExitCodes"]["values"]) == ("FailJob", [ExitCode.FATAL])
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    assert (evicted["action"], evicted["onPodConditions"]) == ("Ignore", [disrupted])
    assert (asked["action"], asked["onExitCodes"]["values"]) == ("Ignore", [ExitCode.PREEMPTED])
