"""What keeps a run in a queue of Kueue waiting: a check without an answer, or a more urgent run.

The controller is Kueue's own. The runs are programs that make their first step when a file is on
the volume. `make test-engines` runs this file.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, people_run, states, training_pods
from tests.e2e.lab import Lab, wait_for
from tests.e2e.queue_guest import CPU, QUEUE, URGENT, end_others, start_others
from tests.e2e.queued_runs import shape_of
from tests.node.lab import background_up, output_file

NAME, OTHER = "e2e-held", "e2e-held-other"
CLUSTER_QUEUE = "disttrain-gpus"
CHECK = "budget"
KINDS = ("indexed-job", "jobset", "trainjob")
NEEDED = ("jobset", "trainer", "kueue")
LIMIT_SECONDS = 300
PROGRAM = (
    "trap 'exit 0' TERM; until test -e /data/{run}; do sleep 0.1; done; "
    "echo step=1; while :; do sleep 0.1; done"
)
BACK = "it was put back (Preempted)"


@pytest.fixture(scope="module")
def stack(lab: Lab) -> Iterator[Stack]:
    """Yield a stack that is up, whose platform has a queue with room for one run."""
    with running(lab.cluster, [CONTROLLERS[name] for name in NEEDED]):
        queue = {
            "queues.name": QUEUE,
            "queues.quota.cpu": CPU,
            f"queues.priorities.{URGENT}": "1000",
        }
        made = lab.stack(NAME, "sandbox", {**queue, "topology": "none"})
        made.up()
        lab.wait_claim_bound()
        made.set_all(
            {"preset": None, "datasetFile": None}
        )  # the template sets these, for our trainer
        yield made
        made.destroy()


def program(run: str, topology: str) -> dict[str, str | None]:
    """Return settings of a run whose program waits for a file of the run's name on the volume."""
    words = ("sh", "-c", PROGRAM.format(run=run))
    settings = {f"program.command[{place}]": word for place, word in enumerate(words)}
    progress = {"program.progress": r"step=(?P<step>\d+)"}
    return {**settings, **progress, "topology": topology, **shape_of(topology), "runName": run}


def said_by(stack: Stack) -> str:
    """Return what the stack's `up` in the background has said so far."""
    return " ".join(output_file(stack).read_text().split())


def told_by_status(lab: Lab, stack: Stack) -> str:
    return " ".join(people_run(lab, stack, f"./disttrain status --stack {stack.name}").split())


def first_step(lab: Lab, run: str) -> None:
    """Let the program of this run make its first step."""
    (lab.cluster.data_root / run).touch()


@pytest.mark.parametrize("kind", KINDS)
def test_run_put_back_before_its_first_step(lab: Lab, stack: Stack, kind: str) -> None:
    """A run that Kueue puts back before its first step comes back by itself when there is room.

    `up` ends well and says why the run was put back, and status has the same words. With `whenBusy:
    wait` the same `up` waits until the run is back.
    """
    run = f"e2e-back-{kind}"
    stack.set_all({**program(run, kind), "queue": QUEUE, "whenBusy": None})
    with background_up(stack) as process:
        wait_for("its pods", lambda: running_pods(lab) == pods_of(kind), LIMIT_SECONDS)
        start_others(lab, "urgent", URGENT)
        try:
            assert process.wait(LIMIT_SECONDS) == 0, output_file(stack).read_text()
            said = said_by(stack)
            assert BACK in said, said
            assert "held by Job urgent in namespace disttrain (priority 1000)" in said
            assert "It starts by itself" in said
            assert BACK in stack.output("queuePlace")
            wait_for("its pods to go", lambda: not training_pods(lab, stack), LIMIT_SECONDS)
            assert states(lab, stack) == {NAME: "queued"}
            assert BACK in told_by_status(lab, stack)
            stack.set("whenBusy", "wait")
        finally:
            end_others(lab, "urgent")
    with background_up(stack) as process:
        wait_for("its pods", lambda: running_pods(lab) == pods_of(kind), LIMIT_SECONDS)
        start_others(lab, "urgent", URGENT)
        try:
            wait_for("the words of up", lambda: BACK in said_by(stack), LIMIT_SECONDS)
            wait_for("its pods to go", lambda: not training_pods(lab, stack), LIMIT_SECONDS)
        finally:
            end_others(lab, "urgent")
        first_step(lab, run)
        assert process.wait(LIMIT_SECONDS) == 0, output_file(stack).read_text()
    assert states(lab, stack) == {NAME: "training"}
    assert len(training_pods(lab, stack)) == pods_of(kind)
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
    people_run(lab, stack, f"./disttrain stop --stack {stack.name}")


def pods_of(kind: str) -> int:
    return int(shape_of(kind)["pods"] or 1)


def running_pods(lab: Lab) -> int:
    """Return the number of running training pods, of whichever run; there is only one run."""
    selector = "app.kubernetes.io/component=training"
    phase = "--field-selector=status.phase=Running"
    return len(lab.kubectl("get", "pod", "-l", selector, phase, "-o", "name").split())


def test_run_replaced_before_its_first_step(lab: Lab, stack: Stack) -> None:
    """Without a queue, `up` of a run that was replaced before its first step fails, and names the
    stack.

    The next `up` of the run brings it back.
    """
    settings = {"platform": NAME, "instance": OTHER}
    other = lab.stack(OTHER, "sandbox-multipod", settings)
    other.set_all({"preset": None, "datasetFile": None, **program("e2e-took", "indexed-job")})
    stack.set_all({**program("e2e-gave", "jobset"), "queue": None, "whenBusy": None})
    try:
        with background_up(stack) as process:
            wait_for("its pods", lambda: running_pods(lab) == pods_of("jobset"), LIMIT_SECONDS)
            first_step(lab, "e2e-took")
            other.up()
            assert process.wait(LIMIT_SECONDS) != 0
            said = said_by(stack)
            assert f"was suspended by stack {OTHER}, whose run took its place" in said, said
            assert "`pulumi up` resumes it" in said
        assert states(lab, stack) == {NAME: "suspended", OTHER: "training"}
        assert f"replaced by {OTHER}" in told_by_status(lab, stack)
        first_step(lab, "e2e-gave")
        stack.up()
        assert states(lab, stack) == {NAME: "training", OTHER: "suspended"}
    finally:
        other.destroy()


@pytest.fixture
def check(lab: Lab, stack: Stack) -> Iterator[None]:
    """Add a check to the queue, as an administrator may, for which there is no controller."""
    item = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": CHECK},
        "spec": {"controllerName": "example.com/budget"},
    }
    given = lab.scratch / "check.json"
    given.write_text(json.dumps(item))
    lab.kubectl("create", "-f", str(given))
    set_checks(lab, [CHECK])
    yield
    set_checks(lab, [])
    lab.kubectl("delete", "-f", str(given))


def set_checks(lab: Lab, names: list[str]) -> None:
    strategy = {"admissionChecks": [{"name": name} for name in names]} if names else None
    patch(lab, "clusterqueue", CLUSTER_QUEUE, {"spec": {"admissionChecksStrategy": strategy}})


def patch(lab: Lab, kind: str, name: str, change: dict[str, Any], *options: str) -> None:
    lab.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(change), *options)


@pytest.mark.usefixtures("check")
def test_check_that_nobody_answers_is_named(lab: Lab, stack: Stack) -> None:
    """`up` and status name a check of the queue that nobody answers.

    While the check's controller has never been there, the queue takes nothing, and `up` is refused
    before anything is made. If the controller has gone away later, the run waits for the check,
    with its quota.
    """
    run = "e2e-checked"
    first_step(lab, run)
    stack.set_all({**program(run, "indexed-job"), "queue": QUEUE, "whenBusy": None})
    before = lab.uids("configmap", "job", "service")

    def refusal() -> str:
        with pytest.raises(PulumiFailedError) as refused:
            stack.up()
        return " ".join(str(refused.value).split())

    wait_for("Kueue to see the check", lambda: not is_active(lab), LIMIT_SECONDS)
    said = refusal()
    assert f"queue: '{QUEUE}' cannot be used now: its ClusterQueue {CLUSTER_QUEUE} is not" in said
    assert CHECK in said
    assert lab.uids("configmap", "job", "service") == before
    active = {"type": "Active", "status": "True", "reason": "Active", "message": "it was there"}
    condition = {**active, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    change = {"status": {"conditions": [condition]}}
    patch(lab, "admissioncheck", CHECK, change, "--subresource=status")
    wait_for("the queue to take runs", lambda: is_active(lab), LIMIT_SECONDS)
    said = " ".join(stack.up().split())
    words = f"waits for checks: {CHECK} is Pending"
    assert words in said, said
    assert "held by" not in said
    assert words in stack.output("queuePlace")
    assert states(lab, stack) == {NAME: "queued"}
    assert words in told_by_status(lab, stack)
    assert training_pods(lab, stack) == []


def is_active(lab: Lab) -> bool:
    found = lab.get("clusterqueue", CLUSTER_QUEUE)["status"].get("conditions", [])
    return any((each["type"], each["status"]) == ("Active", "True") for each in found)
