"""Finds out why pods of a run are missing, from the messages of the controllers that make them.

If some controllers cannot make an object, such as the JobSet of a TrainJob, they report it only in
an event, and leave the status empty (https://github.com/kubeflow/trainer/issues/3671). The same is
true of a Job or a StatefulSet whose pods a quota does not allow: also the Jobs of a JobSet, the
Job of an MPIJob's launcher and the StatefulSets of a LeaderWorkerSet.
"""

from collections.abc import Sequence

from infra.kube.api_server.api import Api
from infra.kube.api_server.events import events_about
from infra.kube.api_server.events import newest_words as newest_event
from infra.kube.api_server.findings import object_at, objects_at
from infra.kube.errors import ApiError
from infra.kube.objects import Json, has_ended, is_ending, label, name_of, part, parts
from infra.kube.paths import JOBS, STATEFUL_SETS
from infra.kube.pods.kubelet_words import words_of_kubelet
from infra.kube.pods.report import report_pod
from infra.kube.queues.queue_findings import words_of_held_pods, words_of_lone_pod
from infra.kube.queues.unqueued_findings import held_without_queue
from infra.kube.queues.volcano import words_of_gang, words_of_refused_pods

JOB_SET, TRAIN_JOB, MPI_JOB = "JobSet", "TrainJob", "MPIJob"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
GROUP_SET = "LeaderWorkerSet"
GROUP_SET_LABEL = "leaderworkerset.sigs.k8s.io/name"
# The kind of the object that owns the Jobs of a run, by the kind of the run's workload.
OWNERS = {JOB_SET: JOB_SET, TRAIN_JOB: JOB_SET, MPI_JOB: MPI_JOB}
# The reason of the event by which Kubeflow Trainer reports that it cannot make a TrainJob's JobSet.
NO_JOBSET = "TrainJobResourcesCreationFailed"
TRY_AT_ONCE = (
    ". Kubeflow Trainer says so in an event alone (trainer#3671) and tries again, later each time: "
    "mend the cause, and ./disttrain stop and then ./disttrain resume make it try at once"
)


def words_of_controller(
    api: Api,
    namespace: str,
    item: Json,
    pods: Sequence[Json],
    wanted: int,
) -> str:
    """Why pods of the run are missing or do not start; empty: they do, or no program says why.

    The text comes from the events of the workload and of the Jobs and StatefulSets that were made
    for it. For a Job of Volcano, `words_of_gang` may give a further reason. For pods that Kueue
    holds back with scheduling gates, Kueue's objects give it. A worker of an MPIJob that nobody
    replaces is named with the command that helps. If no pod is missing, the text comes from the
    events about pods that have not started.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        item: the run's workload.
        pods: the pods of the run that exist.
        wanted: how many pods the run has to have.
    """
    are_missing = sum(not has_ended(pod) for pod in pods) < wanted
    gated = [pod for pod in pods if part(pod, "spec").get("schedulingGates")]
    if gated and (held := _words_of_gated(api, namespace, item, gated[0])):
        return held
    if gang := words_of_gang(api, namespace, item):
        refused = words_of_refused_pods(api, namespace, item) if are_missing else ""
        return f"{refused}; {gang}" if refused else gang
    if not are_missing:
        return words_of_kubelet(api, namespace, pods)
    if dead := _dead_worker(namespace, pods):
        return dead
    found = list[Json]()
    try:
        for uid in (str(item["metadata"]["uid"]), *_uids_of_makers(api, namespace, item)):
            found += events_about(api, namespace, uid, "Warning")
    except ApiError:  # these credentials may not read events
        return ""
    return newest_words(found)


def _words_of_gated(api: Api, namespace: str, item: Json, pod: Json) -> str:
    """Why Kueue holds back pods of a run, of which `pod` is one; empty: Kueue does not."""
    return (
        words_of_held_pods(api, namespace, item)
        or held_without_queue(api, namespace, item)
        or words_of_lone_pod(api, namespace, item, pod)
    )


def _dead_worker(namespace: str, pods: Sequence[Json]) -> str:
    """Which worker of an MPIJob has failed as a whole pod, and what to do; empty: none has.

    The kubelet starts a failed container of a worker again. But the MPI Operator never replaces a
    pod that has failed as a whole, for example because it was evicted or its machine was shut down.
    """
    for pod in pods:
        owners = {owner.get("kind") for owner in parts(part(pod, "metadata"), "ownerReferences")}
        has_failed = part(pod, "status").get("phase") == "Failed" and not is_ending(pod)
        if has_failed and MPI_JOB in owners:
            return (
                f"pod {report_pod(pod).state}, and the MPI Operator makes no other one as long as "
                f"this one is there: kubectl -n {namespace} delete pod {name_of(pod)}"
            )
    return ""


def _uids_of_makers(api: Api, namespace: str, item: Json) -> list[str]:
    """The uids of the Jobs or StatefulSets that a controller has made for the run.

    A JobSet that was made for a TrainJob has the name of the TrainJob. If it has no Job, only the
    events about the JobSet itself say why. The pod of a LeaderWorkerSet's leader owns the
    StatefulSet of the workers, so these have a label.
    """
    kind, found = str(item.get("kind")), list[Json]()
    name = part(item, "metadata").get("name")
    if kind == GROUP_SET:
        sets = objects_at(api, STATEFUL_SETS.format(namespace)) or []
        found = [each for each in sets if label(each, GROUP_SET_LABEL) == name]
    elif kind in OWNERS:
        jobs = objects_at(api, JOBS.format(namespace))
        found = [
            job
            for job in jobs or []
            if any(
                (owner.get("kind"), owner.get("name")) == (OWNERS[kind], name)
                for owner in parts(part(job, "metadata"), "ownerReferences")
            )
        ]
        if kind == TRAIN_JOB and jobs is not None and not found:
            job_set = object_at(api, f"{JOB_SETS.format(namespace)}/{name}")
            found = [job_set] if isinstance(job_set, dict) else []
    return [str(each["metadata"]["uid"]) for each in found]


def newest_words(events: Sequence[Json]) -> str:
    """The newest event as text, with what to do about it if Kubeflow Trainer reports it.

    This function is pure.
    """
    words = newest_event(events)
    return f"{words}{TRY_AT_ONCE}" if words.startswith(f"{NO_JOBSET}: ") else words
