"""What is said of a run that waits in a queue. The objects are as Kueue 0.19.2 wrote them on a real
cluster.
"""

from typing import Any

import pytest

from infra.kube.queues.await_queue import STOPPED, ends_well, queue_place
from infra.kube.queues.queue_place import in_queue, put_out
from infra.kube.workload import Workload

Json = dict[str, Any]
FLAVOR = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor any"
TAKEN = f"{FLAVOR}, 300m more needed"
TOO_LARGE = (
    "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor any, previously "
    "considered podsets requests (0) + current podset request (400m) > maximum capacity (300m)"
)
PREEMPTED = (
    "Preempted to accommodate a workload (UID: b3d8c5cb-9dae-4b64-a624-c4d0356776d1, JobUID: "
    "cb8a7ccb-15e8-4fdc-885a-9ec5dda00a4e) due to prioritization in the ClusterQueue; preemptor "
    "path: /e2e-team; preemptee path: /e2e-team"
)


def condition(type_: str, status: str, message: str = "", reason: str = "Pending") -> Json:
    time = "2026-11-23T00:17:49Z"
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": time,
    }


def workload(
    name: str,
    *conditions: Json,
    priority: int = 0,
    created: str = "00:17:49",
    namespace: str = "default",
    **spec: object,
) -> Json:
    """Return a Workload in the queue `gpus`. One with quota is in the ClusterQueue `team`."""
    admitted = any((c["type"], c["status"]) == ("QuotaReserved", "True") for c in conditions)
    return {
        "metadata": {
            "name": f"job-{name}-94782",
            "namespace": namespace,
            "uid": name,
            "creationTimestamp": f"2026-11-23T{created}Z",
            "ownerReferences": [{"kind": "Job", "name": name}],
        },
        "spec": {"queueName": "gpus", "priority": priority, "active": True, **spec},
        "status": {
            "conditions": list(conditions),
            **({"admission": {"clusterQueue": "team"}} if admitted else {}),
        },
    }


def queue(namespace: str = "default", team: str = "team") -> Json:
    return {
        "metadata": {"name": "gpus", "namespace": namespace},
        "spec": {"clusterQueue": team},
    }


RESERVED = condition("QuotaReserved", "True", reason="QuotaReserved")
ADMITTED = condition("Admitted", "True", reason="Admitted")
WAITS = condition("QuotaReserved", "False", TAKEN)
HOLDER = workload("a", RESERVED, ADMITTED)
OWN = workload("b", WAITS)


def test_words_name_place_reason_and_holder() -> None:
    found = in_queue("gpus", OWN, [queue()], [HOLDER, OWN])
    assert found
    assert found.words == (
        f"in queue gpus (place 1 of 1 in ClusterQueue team): {TAKEN}; "
        "held by Job a in namespace default (priority 0)"
    )
    assert found.since
    assert found.since.isoformat() == "2026-11-23T00:17:49+00:00"
    assert not found.never


@pytest.mark.parametrize(
    ("others", "place"),
    [
        ([workload("c", WAITS, created="00:17:00")], "place 2 of 2"),
        ([workload("c", WAITS, created="00:18:00")], "place 1 of 2"),
        ([workload("c", WAITS, created="00:18:00", priority=5)], "place 2 of 2"),
        ([workload("c", WAITS, created="00:17:00", namespace="other")], "place 2 of 2"),
        ([workload("c", WAITS, created="00:17:00", active=False)], "place 1 of 1"),
        ([workload("c", WAITS, created="00:17:00", queueName="elsewhere")], "place 1 of 1"),
        ([workload("c", condition("Finished", "True"), created="00:17:00")], "place 1 of 1"),
    ],
)
def test_place_counts_who_goes_first_in_the_same_cluster_queue(
    others: list[Json], place: str
) -> None:
    """A run's place in its queue is counted by priority and then by age, over all namespaces whose
    queues belong to the same ClusterQueue. Workloads that are inactive, over or in other queues do
    not count.
    """
    queues = [queue(), queue("other")]
    found = in_queue("gpus", OWN, queues, [HOLDER, OWN, *others])
    assert found
    assert f"({place} in ClusterQueue team)" in found.words


def test_place_is_left_out_where_the_queues_cannot_be_seen() -> None:
    found = in_queue("gpus", OWN, [], [])
    assert found
    assert found.words == f"in queue gpus: {TAKEN}"


def test_holders_of_the_same_queue_are_named_and_the_rest_counted() -> None:
    """The first holders of the quota are named and the others are counted. Holders in another
    ClusterQueue are left out, because without a cohort they keep nobody waiting here.
    """
    elsewhere = workload("z", RESERVED, ADMITTED)
    elsewhere["status"]["admission"] = {"clusterQueue": "other"}
    many = [workload(name, RESERVED, ADMITTED) for name in "acdefghij"]
    found = in_queue("gpus", OWN, [queue()], [elsewhere, OWN, *many])
    assert found
    held = found.words.partition("; held by ")[2].split(", ")
    assert [each.split()[1] for each in held[:-1]] == list("acdefghij")[: len(held) - 1]
    assert held[-1] == f"and {len(many) - len(held) + 1} more"


def test_more_than_the_queue_ever_has_is_told_apart_from_taken() -> None:
    """A run that is too large for every flavor of its queue can never start. A run that is too
    large for one flavor, while the other flavor is taken at the moment, can start later.
    """
    never = workload("b", condition("QuotaReserved", "False", TOO_LARGE))
    found = in_queue("gpus", never, [queue()], [never])
    assert found
    assert found.never
    by_reason = condition("QuotaReserved", "False", "more than its quota", "ExceedsMaxQuota")
    never = workload("b", by_reason)  # a reason of Kueue since 0.19
    found = in_queue("gpus", never, [queue()], [never])
    assert found
    assert found.never
    both = workload("b", condition("QuotaReserved", "False", f"{TOO_LARGE}, {TAKEN}"))
    found = in_queue("gpus", both, [queue()], [both])
    assert found
    assert not found.never


@pytest.mark.parametrize(
    "places", ["allows to fit only 2 out of 3", "doesn't allow to fit any of 3"]
)
def test_room_in_places_of_another_flavor_may_come(places: str) -> None:
    """A run that is too large for one flavor can start later with another one, whose quota suffices
    but whose topology has no room at the moment. Kueue names the reasons of both flavors.
    """
    both = f'{TOO_LARGE}, topology "racks" {places} pod(s)'
    for reason in ("Pending", "ExceedsMaxQuota"):
        waits = workload("b", condition("QuotaReserved", "False", both, reason))
        found = in_queue("gpus", waits, [queue()], [waits])
        assert found
        assert not found.never


def test_resource_without_a_quota_never_comes() -> None:
    """A run that asks for a resource without a quota can never start, even if other quota is taken,
    too. Otherwise the user would be told that it starts by itself.
    """
    message = (
        "couldn't assign flavors to pod set main: resource memory unavailable in ClusterQueue; "
        f"{TAKEN}"
    )
    own = workload("b", condition("QuotaReserved", "False", message))
    found = in_queue("gpus", own, [queue()], [own])
    assert found
    assert found.never
    assert "spec.resourceGroups of the ClusterQueue" in found.remedy
    assert """pulumi config set --path 'queues.quota["NAME"]' AMOUNT""" in found.remedy


def asking(cpu: str, **fields: object) -> Json:
    """Return the fields of a Workload whose one pod asks for this much CPU."""
    container = {"name": "trainer", "resources": {"requests": {"cpu": cpu}}, **fields}
    template = {"spec": {"containers": [container]}}
    return {"podSets": [{"name": "main", "count": 1, "template": template}]}


@pytest.mark.parametrize(
    "silence",
    [
        [],
        [condition("PodsReady", "False", "Not all pods are ready or succeeded", "WaitForStart")],
        # As newer versions may write it, by the feature gate UnadmittedWorkloadsExplicitStatus.
        [
            condition(
                "QuotaReserved",
                "False",
                "Bypassed scheduling evaluation because an equivalent workload recently failed",
                "WaitingForQuota",
            )
        ],
    ],
)
def test_run_like_a_waiting_one_waits_for_the_same(silence: list[Json]) -> None:
    """A run about which Kueue says nothing gets the reason of another waiting run that asks for the
    same. Since 0.18, Kueue looks only at the first of such runs. Otherwise the user would be told,
    even for days, that Kueue has not looked at the run yet.
    """
    own = workload("c", *silence, created="00:18:00", **asking("100m", image="other"))
    first = workload("b", WAITS, **asking("100m"))
    found = in_queue("gpus", own, [queue()], [HOLDER, first, own])
    assert found
    assert found.words == (
        f"in queue gpus (place 2 of 2 in ClusterQueue team): as for Job b in namespace default, "
        f"which asks for the same, {TAKEN}; held by Job a in namespace default (priority 0)"
    )
    assert not found.never
    lent = in_queue("gpus", own, [queue()], [first, own], lambda team: [f"not {team}"])
    assert lent
    assert "held by" not in lent.words
    borrower = workload("z", RESERVED, ADMITTED)
    borrower["status"]["admission"] = {"clusterQueue": "not team"}
    lent = in_queue("gpus", own, [queue()], [borrower, first, own], lambda team: [f"not {team}"])
    assert lent
    assert lent.words.endswith("; held by Job z in namespace default (priority 0)")


def test_run_like_one_that_never_fits_never_starts() -> None:
    """A run that asks for the same as one that can never start can never start either. Otherwise
    `pulumi up` would promise that it starts by itself.
    """
    own = workload("c", **asking("400m"))
    first = workload("b", condition("QuotaReserved", "False", TOO_LARGE), **asking("400m"))
    found = in_queue("gpus", own, [queue()], [first, own])
    assert found
    assert found.never
    assert TOO_LARGE in found.words


@pytest.mark.parametrize(
    "other",
    [
        workload("b", WAITS, **asking("200m")),
        workload("b", WAITS, priority=5, **asking("100m")),
        workload("b", WAITS, queueName="elsewhere", **asking("100m")),
        workload("b", WAITS, active=False, **asking("100m")),
        workload("b", **asking("100m")),
    ],
)
def test_run_unlike_the_others_waits_without_a_reason(other: Json) -> None:
    """A run about which Kueue says nothing does not get the reason of a run with another request,
    priority or queue, of an inactive one, or of one about which Kueue says nothing either.
    """
    own = workload("c", created="00:18:00", **asking("100m"))
    found = in_queue("gpus", own, [queue()], [HOLDER, other, own])
    assert found
    assert ": Kueue has said nothing of it yet: it has not looked at it, or" in found.words
    assert "as for" not in found.words


def test_reason_without_amounts_is_no_never() -> None:
    """A run is not called one that never starts if Kueue only says that a similar one was too large
    for a flavor. Another flavor may have room for both, but its quota is taken.
    """
    words = "Bypassed scheduling evaluation because an equivalent workload recently failed"
    own = workload("b", condition("QuotaReserved", "False", words, "ExceedsMaxQuota"))
    found = in_queue("gpus", own, [queue()], [HOLDER, own])
    assert found
    assert not found.never


def test_preempted_run_says_so_and_a_resumed_one_does_not() -> None:
    """A preempted run says that it was put back, and why. A resumed run does not say so, although
    Kueue keeps its old condition of the stop.
    """
    evicted = condition("Evicted", "True", PREEMPTED, "Preempted")
    own = workload("b", WAITS, evicted)
    found = in_queue("gpus", own, [queue()], [own])
    assert found
    assert (
        ": it was put back (Preempted): Preempted to accommodate a workload due to prioritization "
        "in the ClusterQueue; couldn't"
    ) in found.words
    resumed = condition("Evicted", "True", "The workload is deactivated", "Deactivated")
    own = workload("b", WAITS, resumed)
    found = in_queue("gpus", own, [queue()], [own])
    assert found
    assert "put back" not in found.words


def test_run_out_of_its_queue_says_who_took_it_out() -> None:
    """A run that is out of its queue says whether Kueue or somebody has taken it out, and why.
    Otherwise the user would not learn why the run has ended.
    """
    limit = "The workload is deactivated due to exceeding the maximum execution time"
    evicted = condition("Evicted", "True", limit, "DeactivatedDueToMaximumExecutionTimeExceeded")
    words = put_out("gpus", workload("b", evicted))
    assert words == f"Kueue has taken it out of queue gpus: {limit}"
    evicted = condition("Evicted", "True", "The workload is deactivated", "Deactivated")
    by_hand = "somebody has taken it out of queue gpus (spec.active of its Workload)"
    assert put_out("gpus", workload("b", evicted)) == put_out("gpus", workload("b")) == by_hand
    evicted = condition("Evicted", "True", "Exceeded the PodsReady timeout", "PodsReadyTimeout")
    before = "before that it was put back (PodsReadyTimeout): Exceeded the PodsReady timeout"
    assert put_out("gpus", workload("b", evicted)) == f"{by_hand}; {before}"


def test_run_that_kueue_has_forgotten_says_so() -> None:
    """A run that Kueue has put back but still counts as admitted says so, with the way out.
    Otherwise it would look like a run whose pods are on their way.

    This is the fault https://github.com/kubernetes-sigs/kueue/issues/14811.
    """
    evicted = condition("Evicted", "True", "Exceeded the PodsReady timeout", "PodsReadyTimeout")
    own = workload("b", RESERVED, ADMITTED, evicted)
    found = in_queue("gpus", own, [queue()], [own])
    assert found
    assert found.words.startswith(
        "in queue gpus: it was put back (PodsReadyTimeout): Exceeded the PodsReady timeout; "
        "Kueue still counts its place."
    )
    assert "(kueue#14811)" in found.words
    assert "./disttrain stop and then ./disttrain resume" in found.words
    assert found.since is not None
    again = workload("b", RESERVED, ADMITTED, {**evicted, "status": "False"})
    assert in_queue("gpus", again, [queue()], [again]) is None


def test_checks_of_an_admin_are_waited_for_by_name() -> None:
    own = workload("b", RESERVED)
    own["status"]["admissionChecks"] = [
        {"name": "nodes", "state": "Pending"},
        {"name": "budget", "state": "Ready"},
    ]
    found = in_queue("gpus", own, [queue()], [own])
    assert found
    assert found.words.endswith(": waits for checks: nodes is Pending")


def test_run_that_has_quota_again_waits_for_its_checks_and_for_no_holder() -> None:
    """A run with quota waits for its admission checks, and nobody is named as a holder of its
    quota. Kueue keeps its old text about the missing quota, which must not be repeated.
    """
    before = condition("Admitted", "False", "The workload has no reservation", "NoReservation")
    own = workload("b", RESERVED, before)
    own["status"]["admissionChecks"] = [
        {"name": "nodes", "state": "Pending", "message": "12 of 16 nodes are there"}
    ]
    found = in_queue("gpus", own, [queue()], [HOLDER, own])
    assert found
    assert found.words == (
        "in queue gpus (in ClusterQueue team): waits for checks: nodes is Pending (12 of 16 nodes "
        "are there)"
    )


def test_run_that_has_its_place_or_is_over_waits_for_nothing() -> None:
    assert in_queue("gpus", HOLDER, [queue()], [HOLDER]) is None
    over = workload("a", condition("Finished", "True"))
    assert in_queue("gpus", over, [queue()], [over]) is None


def test_output_has_the_place_or_says_that_it_is_had() -> None:
    """The output `queuePlace` says where the run was in its queue when `pulumi up` last waited for
    it, because a queue moves on. It also says if the run had its place, is in no queue, or was
    stopped.
    """
    place = in_queue("gpus", OWN, [queue()], [HOLDER, OWN])
    assert place
    said = ends_well(Workload("batch/v1", "Job", "train-indexed"), place)
    told = queue_place(f"0 s: waiting for Job train-indexed\n{said}\n", "gpus")
    then = "when pulumi up last waited for the run: "
    assert told.startswith(f"{then}Job train-indexed waits in queue gpus (place 1 of")
    assert "held by Job a in namespace default (priority 0)" in told
    trains = "all ranks have stepped: 2 of 2 pods are ready\n"
    assert queue_place(trains, "gpus").endswith("the run had its place in queue gpus")
    assert queue_place(trains, "") == "the run is in no queue of Kueue"
    by_default = "Job train-indexed has its place in queue default\n"
    assert queue_place(by_default + trains, "") == f"{then}{by_default.strip()}"
    assert queue_place(f"{said}\n", "").endswith(said)
    stopped = f"Job train-indexed{STOPPED}, so `pulumi up` does not wait for its first step."
    assert queue_place(f"{stopped}\n", "gpus") == f"{then}{stopped}"
    assert queue_place(f"{stopped}\n", "") == "the run is in no queue of Kueue"


def test_run_that_kueue_has_not_seen_says_so() -> None:
    found = in_queue("gpus", None, [], [])
    assert found
    assert found.words.startswith("in queue gpus: Kueue has not taken it up yet. If this lasts")
    assert "managedJobsNamespaceSelector" in found.words


def test_run_that_kueue_has_not_seen_is_not_promised_a_start() -> None:
    """The line about a run that Kueue has not looked at does not promise that it starts by itself.
    In a namespace that Kueue leaves out, such a run never starts.
    """
    unseen, seen = in_queue("gpus", None, [], []), in_queue("gpus", OWN, [queue()], [OWN])
    assert unseen
    assert seen
    workload = Workload("batch/v1", "Job", "train-indexed")
    assert "starts by itself" in ends_well(workload, seen)
    said = ends_well(workload, unseen)
    assert "starts by itself" not in said
    assert queue_place(f"{said}\n", "gpus").endswith("shows whether it has begun")
