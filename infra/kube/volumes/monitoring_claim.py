"""Task `monitoring-claim`: checks whether the cluster can give Prometheus a volume for its metrics.

Prometheus' operator makes the claim. It is deleted with the namespace of the controller.
"""

import time

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import object_at
from infra.kube.job import Job
from infra.kube.paths import CLASSES
from infra.kube.volumes.storage_findings import StorageNeeds
from infra.kube.volumes.use_claim import refuse_problems
from infra.kube.waiting import POLL_SECONDS
from infra.names import ONE_NODE


def create(job: Job, api: Api) -> None:
    """Check the storage class, and the claim if it exists already.

    Raises:
        TaskError: the cluster cannot provide a claim of this class and size.
    """
    needs = numbers_needs(
        job.text("claim_namespace"), job.text("claim"), job.text("class_name"), job.number("gib")
    )
    path, end = f"{CLASSES}/{needs.class_name}", time.monotonic() + job.number("class_seconds")
    while object_at(api, path) is None and time.monotonic() < end:
        time.sleep(POLL_SECONDS)  # A new k3s makes its storage class some time after its start.
    refuse_problems(api, needs)


def numbers_needs(namespace: str, claim: str, class_name: str, gib: int) -> StorageNeeds:
    """The storage that Prometheus needs."""
    return StorageNeeds(
        namespace=namespace,
        claim=claim,
        is_there=False,
        class_name=class_name,
        access_mode=ONE_NODE,
        size=f"{gib}Gi",
        pods=0,
        class_key="monitoringStorageClass",
        size_key="monitoringStorageGib",
        can_grow=False,
    )
