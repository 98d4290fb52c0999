"""Why a run has no pods yet, in the words of the controller that should make them.

Some controllers tell only an event what they cannot make, such as the JobSet of a TrainJob, and
leave the object's status empty (https://github.com/kubeflow/trainer/issues/3671). A Job does so
where a quota allows it no pod, also the Job of a JobSet.
"""

from collections.abc import Sequence

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import objects_at
from infra.kube.errors import ApiError
from infra.kube.objects import Json, part, parts
from infra.kube.paths import JOBS, NAMESPACES
from infra.kube.queues.volcano import words_of_gang
from infra.kube.runs.making_place import ENDED
from infra.kube.say import shorten

MOST_CHARACTERS = 300
JOB_SET, TRAIN_JOB = "JobSet", "TrainJob"
# The reason of the event by which Kubeflow Trainer says that it cannot make a TrainJob's JobSet.
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
    """What is said of pods that are not there; empty where nothing is said, or all are there.

    The events of the Jobs count too that a controller has made for the run.

    Args:
        api: the cluster.
        namespace: of the run.
        item: the run's workload.
        pods: of the run, as far as there are any.
        wanted: how many there have to be.
    """
    if gang := words_of_gang(api, namespace, item):
        return gang
    if sum(part(pod, "status").get("phase") not in ENDED for pod in pods) >= wanted:
        return ""
    path = f"{NAMESPACES}/{namespace}/events"
    found = list[Json]()
    try:
        for uid in (str(item["metadata"]["uid"]), *_uids_of_jobs(api, namespace, item)):
            selector = f"involvedObject.uid={uid},type=Warning"
            found += parts(api.request("GET", path, query={"fieldSelector": selector}), "items")
    except ApiError:  # these credentials may not read events
        return ""
    return newest_words(found)


def _uids_of_jobs(api: Api, namespace: str, item: Json) -> list[str]:
    """Those of the Jobs that a JobSet has made for the run; a TrainJob's JobSet has its name."""
    if item.get("kind") not in (JOB_SET, TRAIN_JOB):
        return []
    name = item["metadata"]["name"]
    return [
        str(job["metadata"]["uid"])
        for job in objects_at(api, JOBS.format(namespace)) or []
        if any(
            (owner.get("kind"), owner.get("name")) == (JOB_SET, name)
            for owner in parts(part(job, "metadata"), "ownerReferences")
        )
    ]


def newest_words(events: Sequence[Json]) -> str:
    """`FailedCreate: pods "a" is forbidden (12:03:44)`: the newest event; empty without any. Pure.

    The time is that of the cluster, in UTC.
    """
    newest = max(events, key=_time, default=None)
    if newest is None:
        return ""
    words = shorten(f"{newest.get('reason')}: {newest.get('message')}", MOST_CHARACTERS)
    remedy = TRY_AT_ONCE if newest.get("reason") == NO_JOBSET else ""
    return f"{words} ({_time(newest)[11:19]}){remedy}"


def _time(event: Json) -> str:
    """When it came last; one that came once has no series, and older clients write other fields."""
    told = (
        part(event, "series").get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        part(event, "metadata").get("creationTimestamp"),
    )
    return next((str(time) for time in told if time), "")
