"""What `up` shows about the Job of the data set, asked of a real cluster."""

from tests.kube.lab import Lab, Run


def test_quota_without_room_is_shown_until_the_job_ends(lab: Lab) -> None:
    """The Job gets no pod, which only an event says. Once the quota is gone it ends, and the task
    with it.
    """
    run = Run(lab, lab.namespace(), "dev")
    quota = lab.quota(run.namespace, "none", {"pods": "0"})
    run.make(args=["lookup", "localhost"])
    task = lab.start("dataset-progress", "create", _job(run))
    task.wait_for_words("exceeded quota: none")
    lab.api.delete(quota, {})
    status, output = task.end()
    assert status == 0, output
    assert f"waiting for the data set's Job {run.name}; FailedCreate: " in output


def _job(run: Run) -> dict[str, object]:
    return {
        "namespace": run.namespace,
        "owner": run.owner,
        "stack": run.stack,
        "job": run.name,
        "timeout_seconds": 300,
    }
