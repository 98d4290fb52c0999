"""Whose work is in a platform's queue of Kueue, which goes with the platform.

Work that is over counts no more: Kueue lets a queue go then.
"""

from infra.kube.api_server.api import Api
from infra.kube.objects import Json, is_ending, is_true, name_of, part, parts
from infra.kube.queues.kueue import collection, served_version
from infra.kube.record import COLLECTION, SELECTOR, parse_record


def standing_in(api: Api, namespace: str, cluster_queue: str) -> list[Json]:
    """The Workloads of Kueue that wait for a place in a ClusterQueue, or have one.

    Its namespaceSelector lets no other namespace in. Who has a place keeps it when the LocalQueue
    is gone. One that is being deleted stands for work that was deleted: only Kueue's finalizer
    keeps it, for good where Kueue has ended. Raises ApiError and UnreachableError.
    """
    version = served_version(api)
    if not version:
        return []  # what Kueue kept has gone with it
    queues = {
        name_of(queue)
        for queue in api.list(collection(version, "localqueues", namespace))
        if part(queue, "spec").get("clusterQueue") == cluster_queue
    }
    return [
        workload
        for workload in api.list(collection(version, "workloads", namespace))
        if not is_true(workload, "Finished")
        and not is_ending(workload)
        and (
            part(workload, "spec").get("queueName") in queues
            or part(workload, "status", "admission").get("clusterQueue") == cluster_queue
        )
    ]


def of_others(api: Api, namespace: str, workloads: list[Json], owner: str) -> list[Json]:
    """The workloads that are not of an owner's own run, as its record says."""
    records = [parse_record(item) for item in api.list(COLLECTION.format(namespace), SELECTOR)]
    own = {(r.workload.kind, r.workload.name) for r in records if r.owner == owner}
    return [workload for workload in workloads if work_of(workload) not in own]


def work_of(workload: Json) -> tuple[str, str]:
    """Kind and name of what a Workload stands for."""
    owners = parts(part(workload, "metadata"), "ownerReferences")
    return (owners[0]["kind"], owners[0]["name"]) if owners else ("Workload", name_of(workload))


def named(workloads: list[Json]) -> str:
    """`Job a, JobSet b`."""
    return ", ".join(" ".join(work) for work in sorted(map(work_of, workloads)))


def has_place(workload: Json) -> bool:
    """Whether Kueue has given it its part of a quota."""
    return is_true(workload, "QuotaReserved")
