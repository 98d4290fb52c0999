"""Finds out whose work is in a platform's queue of Kueue, before the queue is deleted.

Work that is over does not count, because Kueue lets such a queue be deleted.
"""

from infra.kube.api_server.api import Api
from infra.kube.objects import Json, is_ending, is_true, name_of, part, parts
from infra.kube.queues.kueue import collection, served_version
from infra.kube.record import COLLECTION, SELECTOR, parse_record


def standing_in(api: Api, namespace: str, cluster_queue: str) -> list[Json]:
    """Kueue's Workloads that have a place in a ClusterQueue or wait for one.

    Only one namespace is looked at, because the ClusterQueue's namespaceSelector admits no other. A
    Workload with a place keeps it even if its LocalQueue is gone. A Workload that is being deleted
    does not count: its work was deleted, and only Kueue's finalizer keeps it, possibly forever if
    Kueue no longer runs. Raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        namespace: the namespace of the platform.
        cluster_queue: the name of the ClusterQueue.
    """
    version = served_version(api)
    if not version:
        return []  # Kueue's objects were deleted with it.
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
    """The Workloads that do not belong to the owner's own run, by the record of that run."""
    records = [parse_record(item) for item in api.list(COLLECTION.format(namespace), SELECTOR)]
    own = {(r.workload.kind, r.workload.name) for r in records if r.owner == owner}
    return [workload for workload in workloads if work_of(workload) not in own]


def work_of(workload: Json) -> tuple[str, str]:
    """Kind and name of the object for which Kueue has made a Workload."""
    owners = parts(part(workload, "metadata"), "ownerReferences")
    return (owners[0]["kind"], owners[0]["name"]) if owners else ("Workload", name_of(workload))


def named(workloads: list[Json]) -> str:
    """The objects of these Workloads in words, such as `Job a, JobSet b`."""
    return ", ".join(" ".join(work) for work in sorted(map(work_of, workloads)))


def has_place(workload: Json) -> bool:
    """Whether Kueue has reserved quota for the Workload."""
    return is_true(workload, "QuotaReserved")
