"""Why pods do not exist, from the events of the controllers that should make them."""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.errors import ApiError
from infra.kube.runs.controller_words import newest_words, words_of_controller
from tests.unit.kube.server import ApiServer, Json, api_of

FORBIDDEN = 'pods "p" is forbidden: exceeded quota: team'
NO_POD = f"FailedCreate: {FORBIDDEN} (12:00:02)"


def event(reason: str, message: str, **times: object) -> Json:
    return {"reason": reason, "message": message, "metadata": {}, **times}


def test_newest_event_is_told_with_its_time() -> None:
    """The newest event is printed with its time. A repeated event keeps the time at which it came
    first, so the time of its series counts.
    """
    again = {"lastObservedTime": "2026-11-26T12:00:03.000000Z"}
    events = [
        event("FailedCreate", "b", lastTimestamp="2026-11-26T12:00:02Z"),
        event("FailedCreate", "c", eventTime="2026-11-26T12:00:00.000000Z", series=again),
        event("FailedCreate", "a", eventTime="2026-11-26T12:00:01.000000Z"),
    ]
    assert newest_words(events) == "FailedCreate: c (12:00:03)"
    assert newest_words(events[:1] + events[2:]) == "FailedCreate: b (12:00:02)"
    assert newest_words([]) == ""


def test_trainer_that_cannot_make_its_jobset_has_a_sentence_and_a_command() -> None:
    """If Kubeflow Trainer cannot make its JobSet, the message has its event and the commands that
    make it try again. The status of the TrainJob stays empty in this case
    (https://github.com/kubeflow/trainer/issues/3671).
    """
    message = f"TrainJob resources reconciliation failed: {'no such volume, ' * 40}"
    at = "2026-11-26T12:00:02Z"
    said = newest_words([event("TrainJobResourcesCreationFailed", message, lastTimestamp=at)])
    assert said.startswith("TrainJobResourcesCreationFailed: TrainJob resources reconciliation")
    assert "(12:00:02). Kubeflow Trainer says so in an event alone (trainer#3671)" in said
    assert said.endswith("./disttrain stop and then ./disttrain resume make it try at once")


class Quota(ApiServer):
    """A stand-in for a cluster whose quota has no room for a pod. The controller of Jobs reports it
    in an event about the Job.

    Args:
        about: the uid of the Job.
        owner: the owner of the Job; None: it has none.
    """

    def __init__(self, about: str, owner: Json | None = None) -> None:
        self.about = about
        owners = [owner] if owner else []
        self.jobs = [{"metadata": {"name": "j", "uid": about, "ownerReferences": owners}}]
        self.sets = list[Json]()
        self.job_set: Json | None = None
        self.may_list_jobs = True

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if path == "/apis/apps/v1/namespaces/team/statefulsets":
            if not self.may_list_jobs:
                raise ApiError(403, "statefulsets is forbidden")
            return {"items": self.sets}
        if path == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/train":
            if self.job_set is None:
                raise ApiError(403, "jobsets is forbidden")
            return self.job_set
        if path == "/apis/batch/v1/namespaces/team/jobs":
            if not self.may_list_jobs:
                raise ApiError(403, "jobs is forbidden")
            return {"items": self.jobs}
        assert path == "/api/v1/namespaces/team/events"
        said = event("FailedCreate", FORBIDDEN, lastTimestamp="2026-11-26T12:00:02Z")
        is_asked_for = query["fieldSelector"] == f"involvedObject.uid={self.about},type=Warning"
        return {"items": [said] if is_asked_for else []}


def workload(kind: str, api_version: str) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "train", "uid": "u1"}}


JOB = workload("Job", "batch/v1")
JOB_SET = workload("JobSet", "jobset.x-k8s.io/v1alpha2")
TRAIN_JOB = workload("TrainJob", "trainer.kubeflow.org/v1alpha1")
MPI_JOB = workload("MPIJob", "kubeflow.org/v2beta1")
LWS = workload("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1")
POD: Json = {"metadata": {"name": "train-0"}}


def test_some_pods_that_are_not_there_are_told_too() -> None:
    """The event is also printed if only some of the pods are missing. Otherwise `up` would only say
    that one of two pods is ready until its limit, and nothing of the quota.
    """
    api = api_of(Quota("u1"))
    assert words_of_controller(api, "team", JOB, [POD], 2) == NO_POD
    assert words_of_controller(api, "team", JOB, [POD, POD], 2) == ""
    assert words_of_controller(api, "team", JOB, [POD], 1) == ""


@pytest.mark.parametrize(
    ("item", "owner"),
    [
        (JOB_SET, {"kind": "JobSet", "name": "train", "uid": "u1"}),
        # The TrainJob's JobSet has the same name and owns the Job.
        (TRAIN_JOB, {"kind": "JobSet", "name": "train", "uid": "u2"}),
        # The MPIJob owns the Job of its launcher, which is node 0.
        (MPI_JOB, {"kind": "MPIJob", "name": "train", "uid": "u1"}),
    ],
)
def test_job_that_a_controller_has_made_tells_it(item: Json, owner: Json) -> None:
    """The event about a Job that the run's controller has made counts as one about the run.
    Otherwise `up` would only say `no pod yet`. If the credentials may not list Jobs, nothing is
    said.
    """
    server = Quota("u3", owner)
    assert words_of_controller(api_of(server), "team", item, [], 1) == NO_POD
    server.may_list_jobs = False
    assert words_of_controller(api_of(server), "team", item, [], 1) == ""


@pytest.mark.parametrize(("may_read", "told"), [(True, NO_POD), (False, "")])
def test_jobset_of_a_trainjob_without_jobs_tells_it(may_read: bool, told: str) -> None:
    """If the JobSet of a TrainJob cannot make its Job, for example because a webhook does not
    answer, the event about the JobSet counts. Otherwise `up` would only say `no pod yet`. If the
    credentials may not read JobSets, nothing is said.
    """
    server = Quota("u5")
    server.jobs = []
    server.job_set = {"metadata": {"name": "train", "uid": "u5"}} if may_read else None
    assert words_of_controller(api_of(server), "team", TRAIN_JOB, [], 1) == told


def test_job_of_another_run_tells_nothing() -> None:
    """The event about a Job of another run does not count."""
    server = Quota("u3", {"kind": "JobSet", "name": "train-b", "uid": "u4"})
    assert words_of_controller(api_of(server), "team", JOB_SET, [], 1) == ""


@pytest.mark.parametrize(("name", "owner"), [("train", "LeaderWorkerSet"), ("train-0", "Pod")])
def test_stateful_set_of_a_group_tells_it(name: str, owner: str) -> None:
    """The events about both StatefulSets of a LeaderWorkerSet count: that of the leader, and that
    of the workers, which the leader's pod owns. Otherwise `up` would only say `no pod yet` until
    its limit.
    """
    server = Quota("u3")
    owners = [{"kind": owner, "name": "train", "uid": "u2"}]
    about: Json = {"name": name, "uid": "u3", "ownerReferences": owners}
    labels = {"leaderworkerset.sigs.k8s.io/name": "train"}
    server.sets = [{"metadata": {**about, "labels": labels}}]
    assert words_of_controller(api_of(server), "team", LWS, [], 1) == NO_POD
    server.may_list_jobs = False
    assert words_of_controller(api_of(server), "team", LWS, [], 1) == ""
    server.may_list_jobs = True
    labels["leaderworkerset.sigs.k8s.io/name"] = "train-b"
    assert words_of_controller(api_of(server), "team", LWS, [], 1) == ""


# Volcano 1.14 writes the API server's answer as a value of its programming language.
AS_VOLCANO_WRITES_IT = (
    "Error creating pods: [failed to create pod train-node-0, err: &errors.StatusError{ErrStatus:"
    'v1.Status{TypeMeta:v1.TypeMeta{Kind:"", APIVersion:""}, ListMeta:v1.ListMeta{SelfLink:"", '
    'ResourceVersion:"", Continue:"", RemainingItemCount:(*int64)(nil)}, Status:"Failure", '
    'Message:"pods \\"p\\" is forbidden: exceeded quota: team", Reason:"Forbidden", '
    "Details:(*v1.StatusDetails)(0xc000a8c120), Code:403}}]"
)


class FullQueue(ApiServer):
    """A stand-in for a cluster with Volcano, whose scheduler has let the group of a Job in. A quota
    refuses the Job's pods, which its controller reports in an event about the Job.
    """

    def __init__(self) -> None:
        self.may_read_events = True

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if path.endswith("/podgroups/train-u1"):
            return {"metadata": {"uid": "g1"}, "status": {"phase": "Inqueue"}}
        if "involvedObject.uid=u1" not in query["fieldSelector"]:
            return {"items": []}
        if not self.may_read_events:
            raise ApiError(403, "events is forbidden")
        refused = event("FailedCreate", AS_VOLCANO_WRITES_IT, lastTimestamp="2026-11-26T12:00:02Z")
        later = event("PodGroupPending", "not ready", lastTimestamp="2026-11-26T12:00:03Z")
        return {"items": [refused, later]}


def test_pods_that_volcano_cannot_make_are_told() -> None:
    """A quota that refuses the pods of Volcano's Job is named, in the API server's words. The group
    of the Job has its place in the queue and only says that its pods are missing.
    """
    item: Json = {
        **workload("Job", "batch.volcano.sh/v1alpha1"),
        "spec": {"queue": "default"},
        "status": {"state": {"phase": "Pending"}},
    }
    server = FullQueue()
    group = "in queue default of Volcano: its PodGroup is Inqueue"
    assert words_of_controller(api_of(server), "team", item, [], 1) == f"{NO_POD}; {group}"
    assert words_of_controller(api_of(server), "team", item, [POD], 1) == group
    server.may_read_events = False
    assert words_of_controller(api_of(server), "team", item, [POD], 2) == group
