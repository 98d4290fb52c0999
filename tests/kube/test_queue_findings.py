"""Whether a run can be put into a queue, on a real API server with Kueue's own definitions.

No controller runs here; what Kueue itself does with a run is in tests/e2e/test_queue.py.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.status.snapshot import see_run, take_snapshot
from infra.kube.api_server.api import Api
from infra.kube.queues.kueue import VERSIONS
from infra.kube.queues.queue_findings import queue_findings
from infra.kube.runs.steer import find_record, resume, stop
from sandbox.controllers.kueue import KUEUE
from sandbox.toolchain import tool_folder
from tests.kube.accounts import user_of
from tests.kube.kueue import make, put_into_queue, say
from tests.kube.lab import Lab, Run
from tests.kube.queue_fields import FIELDS


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("plural", FIELDS)
def test_fields_are_the_same_in_each_version(plural: str, version: str) -> None:
    """Each version of Kueue's definitions has the fields that this program uses, at the same
    places.

    So the code need not tell the versions apart.
    """
    folder = tool_folder(KUEUE.tool) / "config" / "components" / "crd" / "bases"
    item: Any = yaml.safe_load((folder / f"kueue.x-k8s.io_{plural}.yaml").read_text())
    (found,) = [each for each in item["spec"]["versions"] if each["name"] == version]
    for path in FIELDS[plural]:
        schema = found["schema"]["openAPIV3Schema"]
        for key in path.split("."):
            assert key in schema["properties"], f"{plural} {version} has no {path}"
            schema = schema["properties"][key]


def test_each_reason_that_keeps_a_run_out_is_told(kueue: Lab) -> None:
    lab = kueue
    namespace = lab.namespace()

    def problems(priority: str = "", *comes: str) -> str:
        return "\n".join(queue_findings(lab.api, namespace, "gpus", priority, comes).problems)

    assert problems("urgent", "localqueues/gpus", "workloadpriorityclasses/urgent") == ""
    assert f"namespace {namespace} has no such LocalQueue. It has none: ask" in problems()
    (absent,) = queue_findings(lab.api, "t-absent", "gpus").problems
    assert "namespace t-absent does not exist yet" in absent
    spec = {"metadata": {"name": "gpus"}, "spec": {"clusterQueue": "team"}}
    local = make(lab, "localqueues", {"kind": "LocalQueue", **spec}, namespace)
    assert "its ClusterQueue team is not there" in problems()
    team = {"kind": "ClusterQueue", "metadata": {"name": "team"}, "spec": {}}
    cluster = make(lab, "clusterqueues", team)
    assert problems() == ""
    lab.api.patch(cluster, {"spec": {"stopPolicy": "HoldAndDrain"}})
    assert "its ClusterQueue team is stopped (stopPolicy: HoldAndDrain)" in problems()
    lab.api.patch(cluster, {"spec": {"stopPolicy": "None"}})
    lab.api.patch(local, {"spec": {"stopPolicy": "Hold"}})
    assert "LocalQueue gpus is stopped (stopPolicy: Hold)" in problems()
    assert "LocalQueue gpus is stopped" in problems("", "localqueues/gpus")  # exists too
    lab.api.patch(local, {"spec": {"stopPolicy": "None"}})
    assert "no such WorkloadPriorityClass. There is none at all" in problems("urgent")
    urgent = {"kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 1}
    make(lab, "workloadpriorityclasses", urgent)
    assert problems("urgent") == ""
    assert "Set one of urgent" in problems("hasty")


def test_queue_that_may_not_be_seen_is_told_as_such(kueue: Lab, tmp_path: Path) -> None:
    lab = kueue
    namespace = lab.namespace()
    somebody = user_of(lab, namespace, tmp_path, "view")
    found = queue_findings(somebody, namespace, "gpus", "urgent")
    assert found.problems == []
    assert found.notes == [
        f"it was not checked whether there is a LocalQueue gpus in namespace {namespace}: these "
        "credentials may not look there",
        "it was not checked whether there is a WorkloadPriorityClass urgent: these credentials "
        "may not look there",
    ]


def test_run_that_comes_into_a_queue_ends_nobodys_run(lab: Lab) -> None:
    """A run that is put into a queue suspends no other run, because Kueue decides which run has to
    go.

    Besides, the run may wait for days before it needs the GPUs.
    """
    namespace = lab.namespace()
    first, second = Run(lab, namespace, "dev"), Run(lab, namespace, "other")
    first.up()
    status, output = second.hand_over(queue="gpus")
    assert status == 0, output
    assert not first.is_suspended()


def queued_run(lab: Lab) -> tuple[Run, str]:
    """Return a run that waits in a queue, and the path of its Workload of Kueue."""
    run = Run(lab, lab.namespace(), "dev")
    assert run.hand_over(queue="gpus")[0] == 0
    return run, put_into_queue(run, "full")


def test_stop_and_resume_leave_the_suspending_to_kueue(kueue: Lab) -> None:
    """`stop` and `resume` of a run in a queue change `spec.active`, which Kueue leaves to people.

    Kueue would undo a change of `spec.suspend`.
    """
    run, workload = queued_run(kueue)
    record = find_record(kueue.api, run.namespace, run.owner)

    def fields() -> tuple[object, object]:
        asked, job = kueue.api.get(workload), run.get()
        assert asked
        assert job
        return asked["spec"]["active"], job["spec"]["suspend"]

    assert stop(kueue.api, record) == ""
    assert fields() == (False, True)
    assert stop(kueue.api, record) == "Job train-dev is stopped already"
    assert resume(kueue.api, record, "refuse", 300) == ""
    assert fields() == (True, True)
    assert resume(kueue.api, record, "refuse", 300) == "Job train-dev is not stopped"


def test_run_that_kueue_does_not_take_back_gets_a_new_workload(kueue: Lab) -> None:
    """`resume` removes the Workload of a run that Kueue has stopped, and Kueue makes a new one.

    Kueue ignores a Workload that it has set inactive by itself, also once it is active again.
    Otherwise `resume` would report success, and the run would wait in its queue forever.
    """
    run, workload = queued_run(kueue)
    kueue.api.patch(workload, {"spec": {"active": False}})
    reason = "DeactivatedDueToMaximumExecutionTimeExceeded"
    say(kueue, workload, "Requeued", "False", "exceeding the maximum execution time", reason)
    record = find_record(kueue.api, run.namespace, run.owner)
    assert resume(kueue.api, record, "refuse", 300) == ""
    assert kueue.api.get(workload) is None  # Kueue would make a new one
    job = run.get()
    assert job
    assert job["spec"]["suspend"] is True


def test_status_says_what_a_run_waits_for_as_far_as_it_may_be_read(
    kueue: Lab, tmp_path: Path
) -> None:
    """`status` says what a queued run waits for, or that these credentials may not read it."""
    run, workload = queued_run(kueue)

    def seen(api: Api) -> tuple[str, str]:
        (found,) = [each for each in take_snapshot(api, run.namespace).runs if each.stack == "dev"]
        return found.state, found.detail

    somebody = user_of(kueue, run.namespace, tmp_path, "view")
    assert seen(somebody)[0] == "queued"
    assert "in queue gpus; what it waits for cannot be read: workloads" in seen(somebody)[1]
    everything = Api(kueue.access())
    status, _ = see_run(everything, find_record(everything, run.namespace, run.owner))
    assert (status.state, status.detail) == ("queued", "in queue gpus: full")
    assert status.since
    kueue.api.patch(workload, {"spec": {"active": False}})
    status, _ = see_run(everything, find_record(everything, run.namespace, run.owner))
    assert status.state == "stopped"
    assert status.detail.startswith("somebody has taken it out of queue gpus (spec.active")
    assert status.detail.endswith("./disttrain resume puts it back")
    assert seen(somebody)[0] == "queued"
