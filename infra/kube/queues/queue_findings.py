"""Finds out whether a run can be put into a queue of Kueue, and what a run in a queue waits for."""

from collections.abc import Collection

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, list_if_allowed, listed, object_at
from infra.kube.errors import FORBIDDEN, ApiError, TaskError
from infra.kube.objects import Json, label, name_of, part, parts
from infra.kube.paths import NAMESPACES
from infra.kube.queues.kueue import (
    BY_PODS,
    GROUP,
    collection,
    holds_back_pods,
    is_inactive,
    kueue_workload,
    queue_of,
    served_version,
)
from infra.kube.queues.multikueue_findings import check_other_clusters
from infra.kube.queues.queue_place import InQueue, in_queue, not_started, put_out
from infra.kube.queues.topology_findings import check_level
from infra.kube.queues.volcano import GROUP as VOLCANO
from infra.names import QUEUE_LABEL

INSTALL = "https://kueue.sigs.k8s.io/docs/installation/"


def queue_findings(
    api: Api,
    namespace: str,
    queue: str,
    priority: str = "",
    comes: Collection[str] = (),
    groups_come: Collection[str] = (),
    level: str = "",
) -> Findings:
    """Why a run cannot be put into a queue. Raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        queue: the setting `queue`, the name of a LocalQueue.
        priority: the setting `queuePriority`, the name of a WorkloadPriorityClass; empty: none.
        comes: the objects that the run's own platform makes, such as `localqueues/gpus`. They need
            not be there yet.
        groups_come: the API groups of controllers that the platform installs. They need not be
            there yet either.
        level: the node label that has to be a level of the queue's topology, because all pods have
            to be in one place; empty: none. A queue in `comes` is not checked for it.
    """
    found = Findings()
    try:
        version = served_version(api)
    except TaskError as reason:
        found.problems.append(f"queue: {queue!r} cannot be used: {reason}")
        return found
    if not version and GROUP in groups_come:
        if f"localqueues/{queue}" not in comes:
            found.problems.append(
                f"queue: {queue!r} cannot be used: Kueue comes to the cluster with this stack, so "
                "there is no LocalQueue yet. Let the platform make one (queues.name), or make it "
                "after a first pulumi up with topology none"
            )
        return found
    if not version:
        found.problems.append(
            f"queue: {queue!r} cannot be used: the cluster serves no {GROUP}, so Kueue is not "
            f"there. Install it ({INSTALL}), let the platform do it (controllers: [kueue]), or "
            "remove the setting: pulumi config rm queue"
        )
        return found
    if f"localqueues/{queue}" not in comes:
        _check_queue(api, version, namespace, queue, found, level)
    elif _is_there(api, version, namespace, queue):
        _check_queue(api, version, namespace, queue, found)
    if priority and f"workloadpriorityclasses/{priority}" not in comes:
        _check_priority(api, version, priority, found)
    return found


def waiting(api: Api, namespace: str, item: Json) -> InQueue | None:
    """What a run waits for in its queue; None: it is in no queue, or has its place.

    Raises:
        ApiError: these credentials may not read Kueue's Workloads of the namespace.
        TaskError: the cluster serves a Kueue that this program does not know.
    """
    queue = label(item, QUEUE_LABEL)
    if not queue:
        return None
    version = served_version(api)
    own = kueue_workload(api, namespace, item) if version else None
    if not version or own is None:
        return in_queue(queue, None, [], [])
    queues = _all_or_own(api, version, "localqueues", namespace)
    workloads = _all_or_own(api, version, "workloads", namespace)
    place = in_queue(queue, own, queues, workloads, lambda team: _lenders(api, version, team))
    return place or not_started(queue, own, item)


def words_of_held_pods(api: Api, namespace: str, item: Json) -> str:
    """What the pods of a run wait for in a queue, if Kueue holds back them and not the run.

    The text is empty if Kueue does not hold them back, or if that may not be read.
    """
    if not holds_back_pods(item):
        return ""
    try:
        place = waiting(api, namespace, item)
    except (ApiError, TaskError):
        return ""
    return place.words if place and place.since else ""


def words_of_lone_pod(api: Api, namespace: str, item: Json, pod: Json) -> str:
    """What a pod waits for that Kueue holds back by itself; empty: Kueue does not, or it is unseen.

    Kueue does so with the pods of a kind that it does not watch, if it watches pods. It knows which
    pods of a StatefulSet or LeaderWorkerSet belong together.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        item: the run's workload.
        pod: a pod of the run with scheduling gates.
    """
    try:
        if item.get("kind") in BY_PODS or kueue_workload(api, namespace, pod) is None:
            return ""
        place = waiting(api, namespace, pod)
    except (ApiError, TaskError):
        return ""
    if label(pod, QUEUE_LABEL) and place is None:
        return ""  # It has its place now, and starts.
    words = f"waits {place.words}" if place else "is in no queue of Kueue, and never starts"
    whose, way_out = f"objects of kind {item.get('kind')}", "choose another topology"
    if str(item.get("apiVersion")).startswith(f"{VOLCANO}/"):  # Kueue has no integration for them
        whose = "Volcano's Jobs"
    else:
        way_out += (
            ", or ask the administrator of Kueue to add that kind to integrations.frameworks of "
            "its configuration"
        )
    return (
        f"pod {name_of(pod)} {words}. Kueue does not watch {whose}, and holds back each of their "
        f"pods by itself: {way_out}"
    )


def _lenders(api: Api, version: str, team: str) -> list[str]:
    """The other ClusterQueues in the cohort of a ClusterQueue; empty: they may not be read."""
    found, _ = list_if_allowed(api, collection(version, "clusterqueues"))
    cohorts = {name_of(each): _cohort(each) for each in found or []}
    own = cohorts.pop(team, "")
    return [name for name, cohort in cohorts.items() if own and cohort == own]


def _cohort(cluster_queue: Json) -> str:
    spec = part(cluster_queue, "spec")
    return str(spec.get("cohortName") or spec.get("cohort") or "")  # v1beta2, v1beta1


def out_of_queue(api: Api, namespace: str, item: Json) -> str:
    """Why a suspended run is out of its queue; empty: it names no queue, or waits in it.

    Raises:
        ApiError: these credentials may not read Kueue's Workloads of the namespace.
        TaskError: the cluster serves a Kueue that this program does not know.
    """
    queue = queue_of(item)
    own = kueue_workload(api, namespace, item) if queue else None
    return put_out(queue, own) if own is not None and is_inactive(own) else ""


def _all_or_own(api: Api, version: str, plural: str, namespace: str) -> list[Json]:
    """The objects of all namespaces, or only of the run's namespace if more may not be read."""
    found, _ = list_if_allowed(api, collection(version, plural))
    if found is not None:
        return found
    return list_if_allowed(api, collection(version, plural, namespace))[0] or []


def _is_there(api: Api, version: str, namespace: str, queue: str) -> bool:
    return object_at(api, f"{collection(version, 'localqueues', namespace)}/{queue}") is not None


def _check_queue(
    api: Api, version: str, namespace: str, queue: str, found: Findings, level: str = ""
) -> None:
    path = collection(version, "localqueues", namespace)
    item = object_at(api, f"{path}/{queue}")
    if item == "unseen":
        found.unseen(f"whether there is a LocalQueue {queue} in namespace {namespace}")
        return
    if item is None:
        found.problems.append(_no_queue(api, namespace, queue, listed(api, path)))
        return
    name = str(part(item, "spec").get("clusterQueue") or "")
    _check_stop(f"LocalQueue {queue}", queue, item, found)
    team = object_at(api, f"{collection(version, 'clusterqueues')}/{name}")
    if team == "unseen":
        # The LocalQueue's own condition also tells whether its ClusterQueue accepts runs.
        _check_active(f"LocalQueue {queue}", queue, item, found)
    elif team is None:
        found.problems.append(
            f"queue: {queue!r} cannot be used: its ClusterQueue {name} is not there, so no run of "
            "it would ever start. Ask the administrator of the cluster to make it"
        )
    elif not _check_stop(f"its ClusterQueue {name}", queue, team, found):
        _check_active(f"its ClusterQueue {name}", queue, team, found)
    if isinstance(team, dict):
        check_other_clusters(api, version, queue, team, found)
        if level:
            check_level(api, version, queue, team, level, found)


def _no_queue(api: Api, namespace: str, queue: str, known: str) -> str:
    start = f"queue: {queue!r} cannot be used: namespace {namespace}"
    if object_at(api, f"{NAMESPACES}/{namespace}") is None:
        return (
            f"{start} does not exist yet, and a LocalQueue needs a namespace. Make the platform "
            "first (pulumi config set topology none; pulumi up), then the LocalQueue"
        )
    hint = f"Set one of {known}, or ask" if known else "It has none: ask"
    return (
        f"{start} has no such LocalQueue. {hint} the administrator of the cluster to make it "
        "(https://kueue.sigs.k8s.io/docs/concepts/local_queue/)"
    )


def _check_stop(what: str, queue: str, item: Json, found: Findings) -> bool:
    """Whether somebody has stopped the queue. If so, the problem is noted."""
    policy = str(part(item, "spec").get("stopPolicy") or "None")
    if policy == "None":
        return False
    found.problems.append(
        f"queue: {queue!r} cannot be used now: {what} is stopped (stopPolicy: {policy}), so it "
        "lets nothing start. Whoever runs the cluster opens it with stopPolicy: None"
    )
    return True


def _check_active(what: str, queue: str, item: Json, found: Findings) -> None:
    for condition in parts(part(item, "status"), "conditions"):
        if condition.get("type") == "Active" and condition.get("status") == "False":
            found.problems.append(
                f"queue: {queue!r} cannot be used now: {what} is not active: "
                f"{condition.get('message') or condition.get('reason')}"
            )


def _check_priority(api: Api, version: str, priority: str, found: Findings) -> None:
    path = collection(version, "workloadpriorityclasses")
    try:
        item = api.get(f"{path}/{priority}")
        known = [] if item else [name_of(each) for each in api.list(path)]
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        found.unseen(f"whether there is a WorkloadPriorityClass {priority}")
        return
    if item is None:
        hint = f"Set one of {', '.join(sorted(known))}" if known else "There is none at all"
        found.problems.append(
            f"queuePriority: {priority!r} cannot be used: the cluster has no such "
            f"WorkloadPriorityClass. {hint}"
        )
