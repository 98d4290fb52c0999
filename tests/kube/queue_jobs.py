"""Makes the input of a task of `python -m infra.kube`, for tests of queues."""

from typing import Any

from infra.kube.job import Job
from tests.kube.lab import Lab


def job_of(lab: Lab, namespace: str, owner: str, **fields: Any) -> Job:
    return Job(lab.access(), namespace, owner, "dev", fields)
