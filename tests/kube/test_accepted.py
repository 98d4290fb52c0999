"""The wait of `up` for a controller that refuses a workload at first, on a real API server.

A policy of the API server stands in for the controller: it refuses a Job with the words with which
the webhook of Kubeflow Trainer refuses a TrainJob.
"""

import pytest

from tests.kube.lab import Lab, Run
from tests.refusals import refused

WORDS = "its runtime must be created before the Job is created"


@pytest.mark.slow
def test_workload_is_waited_for_until_it_is_not_refused(lab: Lab) -> None:
    """`up` waits as long as the cluster refuses the workload, and ends when the cluster would
    accept it.

    The wait itself does not make the workload. Pulumi's engine makes it afterwards.
    """
    run = Run(lab, lab.namespace(), "late")
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}
    about = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": run.name}}
    item = {**about, "spec": {"template": {"spec": pod}}}
    job = {**run.job(), "manifest": item, "refused_at_first": ["must be created before"]}
    with refused(lab.api, item, WORDS, run.namespace):
        task = lab.start("accepted", "create", job)
        task.wait_for_words(WORDS)
    status, output = task.end()
    assert status == 0, output
    assert run.get() is None
