"""`topology: volcano`: the Job of Volcano that the program makes, and its queue."""

import json
from pathlib import Path
from unittest.mock import patch

import pulumi
import pytest

from infra.labels import REVISION_LABEL
from tests.unit.stacks import Deployment, deploy


def test_volcano_starts_all_pods_or_none(tmp_path: Path) -> None:
    """Volcano starts either all pods or none. Every field that its webhook would fill in is set,
    because the webhook refuses an update without these fields.
    """
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
    assert fatal == {"exitCode": 78, "action": "TerminateJob"}  # Volcano uses the first match.
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
    """Another queue of Volcano makes another workload, because Volcano does not move a Job to
    another queue. `up` checks the queue before the hand-over.
    """

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
    most = made(restarts=2**31 - 1).one("training-volcano-job").inputs["spec"]["maxRetry"]
    assert most == 2**31 - 1  # a larger number does not fit into Volcano's field
    for name, value in (("restarts", -1), ("queue", "")):
        with pytest.raises(pulumi.RunError, match=f"{name}: {value!r} cannot be used"):
            made(**{name: value})


def test_preview_leaves_a_job_of_volcano_as_its_webhook_wants_it(tmp_path: Path) -> None:
    """A preview ignores changes of the spec of Volcano's Job. The provider tries the new Job out on
    the old one, and Volcano's webhook would refuse that.

    The preview shows the changed label of the revision as an update, and not as a replacement. For
    a replacement, the engine would send the whole new Job, whatever is to be ignored.
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
