"""`topology: indexed-job`: the Job that the program makes."""

from pathlib import Path

from tests.unit.stacks import deploy


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
