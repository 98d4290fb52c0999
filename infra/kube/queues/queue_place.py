"""Finds out what a run in a queue of Kueue waits for, its place there, and who holds the quota.

The meaning of the conditions is described in https://kueue.sigs.k8s.io/docs/concepts/workload/.
All functions are pure.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from infra.kube.objects import Json, condition, is_true, name_of, part, parts
from infra.kube.say import first_of
from infra.names import PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY

TOPOLOGY_REQUESTS = {REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY}
EXCEEDS = "ExceedsMaxQuota"  # Kueue's reason since 0.19; before, only its message says it
EXCEEDS_WORDS = "> maximum capacity"
UNCOVERED_WORDS = "unavailable in ClusterQueue"  # the queue has no quota for a resource
TAKEN_WORDS = "insufficient unused quota"  # others use the quota at the moment
# A flavor has enough quota, but its topology has no room for the pods at the moment.
NO_PLACE_WORDS = ("allows to fit only", "doesn't allow to fit")
# Newer versions of Kueue may say this about a run that asks for the same as another one.
BYPASSED_WORDS = "Bypassed scheduling evaluation"
NOTHING_SAID = (
    "Kueue has said nothing of it yet: it has not looked at it, or there is no room for an earlier "
    "run that asks for the same"
)
NOT_TAKEN_UP = (
    "Kueue has not taken it up yet. If this lasts for more than some seconds, Kueue does not run, "
    "or is set up to leave this namespace out (managedJobsNamespaceSelector), and the run never "
    "starts: ask the administrator of Kueue"
)
_COVER = (
    "Ask the administrator of Kueue to add that resource to spec.resourceGroups of the "
    "ClusterQueue. If a platform of disttrain has made the queue, add it in the stack of that "
    """platform: pulumi config set --path 'queues.quota["NAME"]' AMOUNT. The pods always ask for """
    "cpu and memory, on GPUs for nvidia.com/gpu, and with network efa or rdma for its devices"
)
DEACTIVATED = "Deactivated"  # Kueue's reason if somebody has set a Workload inactive
BY_KUEUE_ITSELF = f"{DEACTIVATED}DueTo"  # if Kueue has done that; the cause follows
MOST_HOLDERS = 3
# The fields of a TrainJob into which Kueue writes: since 0.17, and before.
TRAINERS_FIELDS = ("runtimePatches", "podTemplateOverrides")
OF_SHAPE = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
    "resources",
)
"""The fields of a pod's spec that Kueue compares between two runs, besides the containers."""
INTERNALS = r" \(UID: [^)]*\)|; preempt(or|ee) path: [^;]*"  # of no use to people in a message


@dataclass(frozen=True)
class InQueue:
    """A run that waits in a queue.

    Args:
        since: when the run began to wait; None: Kueue has not taken it up yet.
        words: its place, the reason and the holders of the quota, as one sentence.
        never: whether the run asks for more than the queue can ever give.
        remedy: what to do if `never` is true.
    """

    since: datetime | None
    words: str
    never: bool = False
    remedy: str = "Ask for less, or for a larger quota"


def in_queue(
    queue: str,
    own: Json | None,
    queues: Sequence[Json],
    workloads: Sequence[Json],
    lenders: Callable[[str], Collection[str]] = lambda _: (),
) -> InQueue | None:
    """What Kueue's objects say about a run that waits; None: it has its place, or is over.

    Args:
        queue: the name of the run's LocalQueue.
        own: Kueue's Workload of the run; None: there is none yet.
        queues: the LocalQueues that may be read, if allowed of all namespaces.
        workloads: the Workloads that may be read.
        lenders: returns the other ClusterQueues that share their quota with the named one. It is
            called only if others have the quota and none of them is in that ClusterQueue.
    """
    if own is None:
        return InQueue(None, f"in queue {queue}: {NOT_TAKEN_UP}")
    if is_true(own, "Finished"):
        return None
    if is_true(own, "Admitted"):
        return _on_its_way_back(queue, own)
    team = _cluster_queue_of(own, queues)
    place = _place(own, team, queues, workloads)
    reserved = condition(own, "QuotaReserved")
    since = str(reserved.get("lastTransitionTime") or own["metadata"]["creationTimestamp"])
    like = _like(own, team, queues, workloads) if _is_silent(reserved) else None
    if like:
        reserved = condition(like, "QuotaReserved")
        said = f"as for {_owner(like)}, which asks for the same, {_said(reserved)}"
    else:
        said = _reason(own)
    reason = "; ".join(text for text in (_eviction(own), said) if text)
    holders = ""
    if not is_true(own, "QuotaReserved"):
        holders = _holders((team,), workloads)
        if team and not holders and TAKEN_WORDS in str(reserved.get("message")):
            holders = _holders(lenders(team), workloads)
    words = f"in queue {queue}{place}: {reason}{holders}"
    since_then = datetime.fromisoformat(since)
    if UNCOVERED_WORDS in str(reserved.get("message")):
        return InQueue(since_then, words, never=True, remedy=_COVER)
    return InQueue(since_then, words, _never(reserved))


def _is_silent(reserved: Json) -> bool:
    """Whether Kueue's condition does not say what keeps a run from its quota."""
    if reserved.get("status") == "True":
        return False
    return not reserved or BYPASSED_WORDS in str(reserved.get("message"))


def _like(own: Json, team: str, queues: Sequence[Json], workloads: Sequence[Json]) -> Json | None:
    """Another Workload that waits for the same as a run about which Kueue says nothing.

    Since 0.18, Kueue does not look at a Workload, and writes no condition about it, while another
    Workload of the same shape and priority does not fit into the ClusterQueue
    (SchedulingEquivalenceHashing).
    """
    uid, shape = own["metadata"]["uid"], _shape(own)
    return next(
        (
            each
            for each in workloads
            if team
            and each["metadata"]["uid"] != uid
            and _waits(each)
            and not _is_silent(condition(each, "QuotaReserved"))
            and _cluster_queue_of(each, queues) == team
            and _shape(each) == shape
        ),
        None,
    )


def _shape(workload: Json) -> Json:
    """What Kueue compares of two Workloads (`computeSchedulingHash`, `SpecShape` in its code)."""
    sets = [
        {
            **{key: pods.get(key) for key in ("name", "count", "minCount", "topologyRequest")},
            **{key: part(pods, "template", "spec").get(key) for key in OF_SHAPE},
            "asked": [
                (part(container, "resources").get("requests"), container.get("ports"))
                for key in ("initContainers", "containers")
                for container in parts(part(pods, "template", "spec"), key)
            ],
        }
        for pods in parts(part(workload, "spec"), "podSets")
    ]
    return {"priority": _priority(workload), "podSets": sets}


def _on_its_way_back(queue: str, own: Json) -> InQueue | None:
    """What an admitted run waits for that Kueue has evicted; None: Kueue has not evicted it.

    Kueue still counts the place of such a run, while its pods save. If Kueue forgets the run, it
    holds the quota without any pod (https://github.com/kubernetes-sigs/kueue/issues/14811).
    """
    eviction = _eviction(own)
    if not eviction:
        return None
    since = str(condition(own, "Evicted")["lastTransitionTime"])
    words = (
        f"in queue {queue}: {eviction}; Kueue still counts its place. If this lasts for more "
        "than some minutes, Kueue has forgotten the run (kueue#14811). ./disttrain stop and then "
        "./disttrain resume make Kueue look at it again"
    )
    return InQueue(datetime.fromisoformat(since), words)


def not_started(queue: str, own: Json, item: Json) -> InQueue | None:
    """What the versions of a cluster mean for a TrainJob that has its place; None: it can start.

    This function is pure.

    Kueue 0.17 and newer write what they have chosen for the pods into `runtimePatches` when the
    TrainJob is made. Trainer 2.1 has no such field, so the API server drops it, and Kueue then
    cannot start the TrainJob. It says so only in its own log, and its quota stays taken.

    Args:
        queue: the name of the run's LocalQueue.
        own: Kueue's Workload of the run, which has its place.
        item: the run's workload.
    """
    spec, admitted = part(item, "spec"), condition(own, "Admitted")
    starts = item.get("kind") != "TrainJob" or spec.get("suspend") is not True
    if starts or any(spec.get(key) for key in TRAINERS_FIELDS) or admitted.get("status") != "True":
        return None
    words = (
        f"in queue {queue}: it has its place, but is not started. If this lasts, Kueue cannot do "
        "it: for that, Kueue 0.17 and newer need Kubeflow Trainer 2.2 or newer, whose TrainJobs "
        "have the field runtimePatches. Ask the administrator of the cluster for a newer Trainer, "
        "or set topology to jobset"
    )
    return InQueue(datetime.fromisoformat(str(admitted["lastTransitionTime"])), words)


def put_out(queue: str, own: Json) -> str:
    """Why a run is out of its queue, although `./disttrain stop` did not take it out.

    This function is pure.

    Kueue takes a run out if its pods did not become ready after too many starts, if it has reached
    its longest time (`kueue.x-k8s.io/max-exec-time-seconds`), or if a check has refused it.

    Args:
        queue: the run's LocalQueue.
        own: Kueue's Workload of the run. Its `spec.active` is false.
    """
    evicted = condition(own, "Evicted")
    reason, message = str(evicted.get("reason") or ""), str(evicted.get("message") or "")
    if reason.startswith(BY_KUEUE_ITSELF):
        return f"Kueue has taken it out of queue {queue}: {re.sub(INTERNALS, '', message)}"
    before = f"; before that {back}" if (back := _eviction(own)) else ""
    return f"somebody has taken it out of queue {queue} (spec.active of its Workload){before}"


def ignores_topology(own: Json) -> bool:
    """Whether Kueue ignores the annotations by which a run's pods ask for their places.

    This function is pure.
    """
    return any(
        TOPOLOGY_REQUESTS & part(pods, "template", "metadata", "annotations").keys()
        and not pods.get("topologyRequest")
        for pods in parts(part(own, "spec"), "podSets")
    )


def _never(reserved: Json) -> bool:
    """Whether no flavor of the queue has room for the run, even if the queue is empty.

    Kueue's reason is that of its worst flavor, so only its message tells whether another one has
    room.
    """
    message = str(reserved.get("message") or "")
    exceeds = reserved.get("reason") == EXCEEDS or EXCEEDS_WORDS in message
    later = (TAKEN_WORDS, BYPASSED_WORDS, *NO_PLACE_WORDS)
    return exceeds and not any(words in message for words in later)


def _place(own: Json, team: str, queues: Sequence[Json], workloads: Sequence[Json]) -> str:
    """The run's place, such as ` (place 2 of 3 in ClusterQueue team)`.

    The order is by priority, then by age, as Kueue has it by default.
    """
    if not team:
        return ""
    waiting = [
        each for each in workloads if _waits(each) and _cluster_queue_of(each, queues) == team
    ]
    order = sorted(waiting, key=_rank)
    uids = [each["metadata"]["uid"] for each in order]
    uid = own["metadata"]["uid"]
    place = f"place {uids.index(uid) + 1} of {len(uids)} in" if uid in uids else "in"
    return f" ({place} ClusterQueue {team})"


def _rank(workload: Json) -> tuple[int, str, str]:
    metadata = part(workload, "metadata")
    created = str(metadata.get("creationTimestamp") or "")
    return -_priority(workload), created, str(metadata.get("uid"))


def _priority(workload: Json) -> int:
    return int(part(workload, "spec").get("priority") or 0)


def _waits(workload: Json) -> bool:
    over = is_true(workload, "QuotaReserved") or is_true(workload, "Finished")
    return not over and part(workload, "spec").get("active") is not False


def _cluster_queue_of(workload: Json, queues: Sequence[Json]) -> str:
    wanted = str(part(workload, "spec").get("queueName") or "")
    namespace = part(workload, "metadata").get("namespace")
    for queue in queues:
        if name_of(queue) == wanted and part(queue, "metadata").get("namespace") == namespace:
            return str(part(queue, "spec").get("clusterQueue") or "")
    return ""


def _reason(own: Json) -> str:
    """What the run waits for: its quota, else its admission checks, else its admission.

    The checks come before the condition Admitted, because Kueue may keep an old text there.
    """
    reserved, admitted = condition(own, "QuotaReserved"), condition(own, "Admitted")
    if reserved and reserved.get("status") != "True":
        return _said(reserved)
    checks = [
        _check(check)
        for check in parts(part(own, "status"), "admissionChecks")
        if check.get("state") != "Ready"
    ]
    if checks:
        return f"waits for checks: {', '.join(checks)}"
    return _said(admitted) if admitted else NOTHING_SAID


def _said(found: Json) -> str:
    return str(found.get("message") or found.get("reason"))


def _check(check: Json) -> str:
    why = f" ({check['message']})" if check.get("message") else ""
    return f"{check.get('name')} is {check.get('state')}{why}"


def _eviction(own: Json) -> str:
    evicted = condition(own, "Evicted")
    reason = str(evicted.get("reason") or "")
    # The reason `Deactivated` is left from ./disttrain stop, before ./disttrain resume.
    if evicted.get("status") != "True" or reason.startswith(DEACTIVATED):
        return ""
    message = re.sub(INTERNALS, "", str(evicted.get("message") or ""))
    return f"it was put back ({reason}): {message}"


def _holders(teams: Collection[str], workloads: Sequence[Json]) -> str:
    """Who holds the quota, such as `; held by Job train-a in namespace team (priority 100)`."""
    holding = [
        each
        for each in workloads
        if is_true(each, "QuotaReserved")
        and not is_true(each, "Finished")
        and part(each, "status", "admission").get("clusterQueue") in teams
    ]
    if not holding:
        return ""
    return f"; held by {first_of([_named(each) for each in holding], MOST_HOLDERS)}"


def _named(workload: Json) -> str:
    return f"{_owner(workload)} (priority {_priority(workload)})"


def _owner(workload: Json) -> str:
    owners = parts(part(workload, "metadata"), "ownerReferences")
    named = f"{owners[0]['kind']} {owners[0]['name']}" if owners else name_of(workload)
    return f"{named} in namespace {workload['metadata'].get('namespace')}"
