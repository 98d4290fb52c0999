"""Lets a Job of another team take all quota of a platform's own queue.

The Job's image does not exist, but Kueue gives the Job quota all the same.
"""

import json

from infra.names import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from tests.e2e.lab import Lab, wait_for

QUEUE, URGENT = "gpus", "urgent"
CPU = "300m"  # the quota of the queue, and what the pods of a run request in all


def start_others(lab: Lab, name: str, priority: str = "") -> None:
    """Make the Job, and wait until it has all of the queue's quota."""
    container = {
        "name": "other",
        "image": "localhost/absent",
        "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": CPU}},
    }
    labels = {QUEUE_LABEL: QUEUE, **({QUEUE_PRIORITY_LABEL: priority} if priority else {})}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    given = lab.scratch / f"{name}.json"
    given.write_text(json.dumps(job))
    lab.kubectl("create", "-f", str(given))
    wait_for(f"quota of {name}", lambda: not lab.get("job", name)["spec"].get("suspend"), 300)


def end_others(lab: Lab, name: str) -> None:
    """Delete the Job, so that its quota is free again."""
    lab.kubectl("delete", "job", name)
