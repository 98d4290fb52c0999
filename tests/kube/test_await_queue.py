"""The wait of `up` for a run in a queue of Kueue, on a real API server.

Kueue's controller does not run; the tests write what it would write.
"""

import pytest

from infra.names import QUEUE_LABEL
from tests.kube.kueue import put_into_queue, say
from tests.kube.lab import Lab, Run

FULL = "insufficient unused quota for cpu in flavor any, 1 more needed"
NEVER = "insufficient quota for cpu in flavor any, request (4) > maximum capacity (3)"


@pytest.fixture
def run(kueue: Lab) -> Run:
    """Return a run for which `up` has handed over and comes to its training."""
    made = Run(kueue, kueue.namespace(), "dev")
    assert made.hand_over(queue="gpus")[0] == 0
    return made


def test_wait_for_the_place_ends_when_the_pods_are_ready(run: Run) -> None:
    """With `whenBusy: wait`, `up` waits for the run's place in the queue, and then for its pods.

    The limits of these two waits are separate: the time in the queue does not count for the pods.
    """
    workload = put_into_queue(run, FULL)
    task = run.lab.start("await", "create", run.await_job(queue_seconds=300))
    task.wait_for_words(f"Job train-dev to get its place in the queue; in queue gpus: {FULL}")
    say(run.lab, workload, "Admitted", "True", "")
    run.lab.api.patch(run.path, {"spec": {"suspend": False}})
    status, output = task.end()
    assert status == 0, output
    assert "all ranks have stepped: 1 of 1 pods are ready" in output


def test_wait_for_the_place_has_a_limit(run: Run) -> None:
    put_into_queue(run, FULL)
    status, output = run.lab.run("await", "create", run.await_job(queue_seconds=1))
    assert status == 1
    assert "waited 1 s (whenBusyTimeoutSeconds) for Job train-dev to get its place" in output
    assert FULL in output


UNCOVERED = "couldn't assign flavors to pod set main: resource memory unavailable in ClusterQueue"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("says", "remedy"), [(NEVER, "Ask for less"), (UNCOVERED, "Ask the administrator of Kueue")]
)
def test_wait_fails_where_the_queue_never_has_so_much(run: Run, says: str, remedy: str) -> None:
    put_into_queue(run, says)
    status, output = run.lab.run("await", "create", run.await_job())
    assert status == 1
    assert f"Job train-dev can never start in queue gpus: {says}. {remedy}" in output


def test_wait_ends_when_somebody_stops_the_run(run: Run) -> None:
    workload = put_into_queue(run, FULL)
    task = run.lab.start("await", "create", run.await_job(queue_seconds=300))
    task.wait_for_words("to get its place in the queue")
    run.lab.api.patch(workload, {"spec": {"active": False}})
    status, output = task.end()
    assert status == 1
    assert "Job train-dev does not start: somebody has taken it out of queue gpus" in output
    assert "`pulumi up` puts it back, and it goes on from what it has saved" in output


def test_run_that_kueue_does_not_look_at_is_told_so(run: Run) -> None:
    """`up` says so when a run trains although Kueue has given it no place in its queue.

    Kueue's default configuration leaves out PyTorchJobs, for example. Such a run passes by the
    queue.
    """
    run.make()
    run.lab.api.patch(run.path, {"metadata": {"labels": {QUEUE_LABEL: "gpus"}}})
    status, output = run.lab.run("await", "create", run.await_job())
    assert status == 0, output
    assert "Job train-dev trains without a place in queue gpus" in output
    assert "integrations.frameworks" in output


def test_run_that_kueue_holds_without_a_queue_says_so(run: Run) -> None:
    """`up` fails with the reason when Kueue holds a run that is in no queue.

    Kueue does so with `manageJobsWithoutQueueName`. The message must not say that `pulumi up`
    resumes the run, because Kueue would suspend it again each time.
    """
    put_into_queue(run, "LocalQueue  doesn't exist")
    run.lab.api.patch(run.path, {"metadata": {"labels": {QUEUE_LABEL: None}}})
    status, output = run.lab.run("await", "create", run.await_job())
    assert status == 1
    assert "Job train-dev does not start: it is in no queue, and Kueue, which shares this" in output
    assert f"kubectl get localqueues -n {run.namespace}" in output
    assert "resumes it" not in output
