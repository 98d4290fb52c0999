"""Stopping and resuming a Job of Volcano by commands, and what is said of its PodGroup and queue.

tests/e2e/test_engines.py asks the real controller.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from infra.kube import waiting
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError
from infra.kube.queues import volcano
from infra.kube.queues.volcano import (
    carry_out,
    reason_of_group,
    volcano_queue_findings,
    words_of_gang,
)
from infra.kube.workload import Workload, is_active, is_suspended, true_condition
from infra.workloads.volcano import API_VERSION, KIND

Json = dict[str, Any]
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/any/jobs"
COMMAND = "/apis/bus.volcano.sh/v1alpha1/namespaces/any/commands/train-volcano-abortjob"
GROUP = "/apis/scheduling.volcano.sh/v1beta1/namespaces/any/podgroups/train-volcano-u1"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
SUSPEND, RESUME = KIND.suspend(cast(Any, None)), KIND.resume(cast(Any, None))


def job(phase: str = "", **status: object) -> Json:
    state = {"state": {"phase": phase}} if phase else {}
    return {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "metadata": {"name": "train-volcano", "uid": "u1"},
        "spec": {"queue": "team", "maxRetry": 19},
        "status": {**state, **status},
    }


class Cluster:
    """Stands in for an API server with these objects, and for Volcano's controller.

    Args:
        obey: called with the action of each new Command. It returns the next phase of the Job, or
            an empty text if the Command is lost, or None if the Command stays and nobody takes it.
        events: the events about the PodGroup.
    """

    def __init__(
        self, obey: Callable[[str], str | None] = lambda action: None, events: Sequence[Json] = ()
    ) -> None:
        self.objects: dict[str, Json] = {}
        self.events = events
        self.given: list[Json] = []
        self.obey = obey

    def path(self, api_version: str, kind: str, namespace: str, name: str) -> str:
        assert (api_version, kind, namespace) == (API_VERSION, "Job", "any")
        return f"{JOBS}/{name}"

    def get(self, path: str) -> Json | None:
        found = self.objects.get(path)
        if found == {"forbidden": True}:
            raise ApiError(403, "forbidden")
        return found

    def list(self, path: str, selector: str = "") -> list[Json]:
        return [item for key, item in self.objects.items() if key.startswith(f"{path}/")]

    def request(self, method: str, path: str, *, query: Json) -> Json:
        assert (method, path) == ("GET", "/api/v1/namespaces/any/events")
        assert query == {"fieldSelector": "involvedObject.uid=g1"}
        return {"items": list(self.events)}

    def create(self, path: str, body: Json) -> None:
        self.given.append(body)
        phase = self.obey(body["action"])
        if phase is None:
            self.objects[f"{path}/{body['metadata']['name']}"] = body
        elif phase:
            self.objects[f"{JOBS}/train-volcano"] = job(phase)

    def delete(self, path: str, options: Json) -> bool:
        return self.objects.pop(path, None) is not None


def api(cluster: Cluster) -> Api:
    return cast(Api, cluster)


def test_command_names_the_job_and_waits_for_its_phase() -> None:
    """A Job is stopped and resumed by Commands that name it with its uid. The call returns when the
    phase of the Job shows that the Command was carried out.
    """
    cluster = Cluster({"AbortJob": "Aborting", "ResumeJob": "Restarting"}.get)
    cluster.objects[f"{JOBS}/train-volcano"] = job("Running")
    carry_out(api(cluster), "any", job("Running"), SUSPEND, suspended=True)
    assert is_suspended(cluster.objects[f"{JOBS}/train-volcano"], SUSPEND)
    carry_out(api(cluster), "any", job("Aborting"), RESUME, suspended=False)
    assert not is_suspended(cluster.objects[f"{JOBS}/train-volcano"], SUSPEND)
    assert [command["action"] for command in cluster.given] == ["AbortJob", "ResumeJob"]
    target = {"apiVersion": API_VERSION, "kind": "Job", "name": "train-volcano", "uid": "u1"}
    assert [command["target"] for command in cluster.given] == [target, target]


def test_forgotten_command_is_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Command that Volcano has taken but not carried out is given again. A Job that is just
    making its pods again loses a command to abort.
    """
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0)
    answers = iter(["", "", "Aborting"])
    cluster = Cluster(lambda action: next(answers))
    cluster.objects[f"{JOBS}/train-volcano"] = job("Restarting")
    carry_out(api(cluster), "any", job("Restarting"), SUSPEND, suspended=True)
    assert len(cluster.given) == 3


def test_command_is_waited_for_as_long_as_pods_may_take_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit of the wait includes the grace period of the Job's pods. A Job that makes its pods
    again hears a command only when the old pods have ended.
    """
    limits: list[float] = []
    monkeypatch.setattr(volcano, "wait_for", lambda what, ask, limit: limits.append(limit))
    given = job("Restarting")
    given["spec"]["tasks"] = [{"template": {"spec": {"terminationGracePeriodSeconds": 300}}}]
    carry_out(api(Cluster()), "any", given, SUSPEND, suspended=True)
    carry_out(api(Cluster()), "any", job("Restarting"), SUSPEND, suspended=True)
    assert limits == [volcano.CARRIED_OUT_SECONDS + 300, volcano.CARRIED_OUT_SECONDS]


def test_command_that_nobody_takes_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Command that nobody takes within the limit is deleted, and the stop fails. Otherwise the
    controller could stop the run long after its user was told that this did not work.
    """
    monkeypatch.setattr(volcano, "CARRIED_OUT_SECONDS", 0)
    cluster = Cluster()
    cluster.objects[f"{JOBS}/train-volcano"] = job("Running")
    with pytest.raises(TaskError, match=r"to carry out AbortJob of Job train-volcano; its phase"):
        carry_out(api(cluster), "any", job("Running"), SUSPEND, suspended=True)
    assert len(cluster.given) == 1
    assert COMMAND not in cluster.objects


def test_command_is_withdrawn_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Command that nobody has taken yet is also deleted when Ctrl-C ends the wait."""

    def interrupted(what: str, ask: Callable[[], str], limit: float) -> None:
        ask()
        assert COMMAND in cluster.objects
        raise KeyboardInterrupt

    monkeypatch.setattr(volcano, "wait_for", interrupted)
    cluster = Cluster()
    cluster.objects[f"{JOBS}/train-volcano"] = job("Running")
    with pytest.raises(KeyboardInterrupt):
        carry_out(api(cluster), "any", job("Running"), SUSPEND, suspended=True)
    assert COMMAND not in cluster.objects


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated"])
def test_job_that_is_over_is_told_nothing(phase: str) -> None:
    cluster = Cluster()
    cluster.objects[f"{JOBS}/train-volcano"] = job(phase)
    carry_out(api(cluster), "any", job("Running"), SUSPEND, suspended=True)
    assert cluster.given == []


@pytest.mark.parametrize(
    ("phase", "suspended", "over"),
    [
        ("", False, ""),
        ("Pending", False, ""),
        ("Running", False, ""),
        ("Restarting", False, ""),
        ("Completing", False, ""),
        ("Terminating", False, ""),
        ("Aborting", True, ""),
        ("Aborted", True, ""),
        ("Completed", False, "Completed"),
        ("Failed", False, "Failed"),
        ("Terminated", False, "Terminated"),
    ],
)
def test_every_phase_has_one_meaning(phase: str, suspended: bool, over: str) -> None:
    types = [*KIND.done, *KIND.failed]
    assert is_suspended(job(phase), SUSPEND) is suspended
    assert true_condition(job(phase), types) == over
    assert is_active(job(phase), SUSPEND, types) is not (suspended or bool(over))


def condition(type_: str, second: int, message: str) -> Json:
    at = f"2026-11-23T08:00:0{second}Z"
    return {"type": type_, "status": "True", "message": message, "lastTransitionTime": at}


def event(type_: str, second: int, message: str) -> Json:
    at = f"2026-11-23T08:00:0{second}Z"
    return {"type": type_, "reason": "Unschedulable", "message": message, "lastTimestamp": at}


# Volcano 1.14.1 has written both events about a group that asked for too many CPUs.
EVENTS = [
    event("Normal", 1, "resource in cluster is overused: overused cpu"),
    event("Warning", 2, "0/0 tasks in gang unschedulable: pod group is not ready, 3 minAvailable"),
]
NO_ROOM = condition("Unschedulable", 1, "3/3 tasks in gang unschedulable: pod group is not ready")
SCHEDULED = condition("Scheduled", 0, "")


@pytest.mark.parametrize(
    ("phase", "conditions", "events", "said"),
    [
        ("", [], [], "its PodGroup is not looked at yet"),
        ("Pending", [], [], "its PodGroup is Pending"),
        ("Pending", [], EVENTS, "resource in cluster is overused: overused cpu"),
        ("Pending", [NO_ROOM], EVENTS, "resource in cluster is overused: overused cpu"),
        ("Pending", [], EVENTS[1:], EVENTS[1]["message"]),
        ("Inqueue", [NO_ROOM], EVENTS, NO_ROOM["message"]),
        ("Inqueue", [NO_ROOM, SCHEDULED], [], NO_ROOM["message"]),
        ("Running", [NO_ROOM, {**SCHEDULED, "lastTransitionTime": "2026-11-23T08:00:02Z"}], [], ""),
    ],
)
def test_group_that_does_not_fit_says_so_itself(
    phase: str, conditions: list[Json], events: list[Json], said: str
) -> None:
    group = {"metadata": {"uid": "g1"}, "status": {"phase": phase, "conditions": conditions}}
    assert reason_of_group(group, events) == said
    cluster = Cluster(events=events)
    cluster.objects[GROUP] = group
    told = words_of_gang(api(cluster), "any", job("Pending"))
    assert told == (f"in queue team of Volcano: {said}" if said else "")


def test_group_that_is_not_there_or_not_to_be_seen() -> None:
    cluster = Cluster()
    told = words_of_gang(api(cluster), "any", job("Pending"))
    assert told == "in queue team of Volcano: its controller has not taken the run up yet"
    cluster.objects[GROUP] = {"forbidden": True}
    assert "cannot be read" in words_of_gang(api(cluster), "any", job("Pending"))


def test_nothing_is_said_of_pods_that_were_started() -> None:
    cluster = Cluster()
    assert words_of_gang(api(cluster), "any", job("Running")) == ""
    other = {**job("Pending"), "apiVersion": "batch/v1"}
    assert words_of_gang(api(cluster), "any", other) == ""
    told = words_of_gang(api(cluster), "any", job("Restarting", retryCount=2))
    assert told == "Volcano makes all pods again (restart 2, and the run fails at 19)"


def test_queue_is_refused_where_no_run_could_stand_in_it() -> None:
    cluster = Cluster()

    def problems(queue: str) -> list[str]:
        return volcano_queue_findings(api(cluster), queue).problems

    start = "topologyOptions.queue: 'team' cannot be used"
    assert problems("team") == [
        f"{start}: Volcano has no such queue. It has none: does its scheduler run?"
    ]
    cluster.objects[f"{QUEUES}/default"] = {"metadata": {"name": "default"}}
    assert problems("default") == []
    assert problems("team") == [f"{start}: Volcano has no such queue. Set one of default"]
    closed = {"metadata": {"name": "team"}, "status": {"state": "Closed"}}
    cluster.objects[f"{QUEUES}/team"] = closed
    assert problems("team") == [
        f"{start} now: it is Closed, so it accepts no run. Ask the administrator "
        "of the cluster to open it"
    ]
    cluster.objects[f"{QUEUES}/team"] = {"forbidden": True}
    found = volcano_queue_findings(api(cluster), "team")
    assert (found.problems, len(found.notes)) == ([], 1)


def test_queue_above_other_queues_is_refused() -> None:
    """A queue that only groups other queues is refused beforehand, and the message names these.
    Otherwise Volcano's webhook would refuse the Job only after another run had made place for it.
    """
    cluster = Cluster()

    def add(name: str, parent: str) -> None:
        cluster.objects[f"{QUEUES}/{name}"] = {
            "metadata": {"name": name},
            "spec": {"parent": parent},
            "status": {"state": "Open"},
        }

    add("team", "root")
    assert volcano_queue_findings(api(cluster), "team").problems == []
    add("vision", "team")
    add("text", "team")
    assert volcano_queue_findings(api(cluster), "team").problems == [
        "topologyOptions.queue: 'team' cannot be used: it only groups other queues. "
        "Set one of text, vision"
    ]
    assert volcano_queue_findings(api(cluster), "vision").problems == []
    cluster.objects[f"{QUEUES}/root"] = {"metadata": {"name": "root"}}
    assert volcano_queue_findings(api(cluster), "root").problems == [
        "topologyOptions.queue: 'root' cannot be used: it only groups other queues. Set one of team"
    ]


def test_kubectl_is_told_which_kind_of_job_it_is() -> None:
    assert Workload(API_VERSION, "Job", "x").typed == "job.batch.volcano.sh"
    assert Workload("batch/v1", "Job", "x").typed == "job"
    assert Workload("kubeflow.org/v1", "PyTorchJob", "x").typed == "pytorchjob"
