"""`topology: volcano`: the Job of Volcano that the program makes, and its queue."""

import json
from pathlib import Path
from unittest.mock import patch

import pulumi
import pytest

from infra.labels import REVISION_LABEL
from tests.unit.stacks import Deployment, deploy


def test_volcano_starts_all_pods_or_none(tmp_path: Path) -> None:
    """Every field that Volcano's webhook would fill in is set: it refuses an update without it."""
    changes = {"topology": "volcano", "pods": 4, "processesPerPod": 2, "priorityClass": "high"}
    made = deploy("sandbox-multipod", tmp_path, changes)
    spec = made.one("training-volcano-job").inputs["spec"]
    assert (spec["schedulerName"], spec["queue"]) == ("volcano", "default")
    assert spec["priorityClassName"] == "high"
    assert (spec["minAvailable"], spec["maxRetry"]) == (4, 401)
    (task,) = spec["tasks"]
    template = task.pop("template")
    assert task == {"name": "node", "replicas": 4, "minAvailable": 4, "maxRetry": 401}
    fatal, lost = spec["policies"]
    assert fatal == {"exitCode": 78, "action": "TerminateJob"}  # before the one for all failures
    assert lost == {"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"}
    assert template["spec"]["restartPolicy"] == "Never"
    (container,) = template["spec"]["containers"]
    variables = {entry["name"]: entry for entry in container["env"]}
    index = variables["JOB_COMPLETION_INDEX"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert index == "metadata.labels['volcano.sh/task-index']"
    service = made.one("training-service").inputs
    assert service["metadata"]["name"] == variables["PET_MASTER_ADDR"]["value"]
    selector = service["spec"]["selector"]
    assert selector.pop("volcano.sh/task-index") == "0"
    assert selector.items() <= template["metadata"]["labels"].items()


def test_queue_of_volcano_is_looked_for_and_makes_another_workload(tmp_path: Path) -> None:
    """Volcano lets nobody move a Job to another queue."""

    def made(**options: object) -> Deployment:
        given = {"topology": "volcano", "topologyOptions": options}
        return deploy("sandbox-multipod", tmp_path, given)

    usual, team = made(), made(queue="team", restarts=40)
    jobs = [each.one("training-volcano-job").inputs for each in (usual, team)]
    assert [item["spec"]["queue"] for item in jobs] == ["default", "team"]
    assert jobs[1]["spec"]["maxRetry"] == 41
    assert len({item["metadata"]["labels"][REVISION_LABEL] for item in jobs}) == 2
    assert json.loads(team.one("training-queue").inputs["stdin"])["volcano_queue"] == "team"
    names = [resource.name for resource in team.resources]
    order = [names.index(f"training-{step}") for step in ("look", "queue", "hand-over")]
    assert order == sorted(order)
    for name, value in (("restarts", -1), ("queue", "")):
        with pytest.raises(pulumi.RunError, match=f"{name}: {value!r} cannot be used"):
            made(**{name: value})


def test_preview_leaves_a_job_of_volcano_as_its_webhook_wants_it(tmp_path: Path) -> None:
    """The provider tries the new Job out on the old one, and the webhook refuses such a change.

    The preview shows the label of the revision instead, as a mere update: for a replacement the
    engine would take the new Job whole, whatever is to be ignored.
    """

    def options(dry_run: bool, topology: str, name: str) -> tuple[list[str], list[str]]:
        with patch("pulumi.runtime.is_dry_run", lambda: dry_run):
            request = deploy("sandbox-multipod", tmp_path, {"topology": topology}).one(name).request
        return list(request.ignoreChanges), list(request.replaceOnChanges)

    changes = ["metadata.labels", "spec"]
    assert options(True, "volcano", "training-volcano-job") == (["spec"], [])
    assert options(False, "volcano", "training-volcano-job") == ([], changes)
    assert options(True, "volcano", "training-service") == ([], [])
    ignored, replaced = options(True, "jobset", "training-job-set")
    assert (ignored, replaced != []) == ([], True)
