"""The word that `status` has for each state of a run, from objects as the API server shows them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from cli.status.judge import STALLED_SECONDS, Seen, judge_run
from cli.status.platform_status import judge_platform
from cli.status.progress import Progress
from cli.verify.nodes import nodes_to_test
from infra.kube.queues.queue_place import InQueue
from infra.kube.record import Ttl
from infra.workloads.volcano import KIND as VOLCANO
from tests.cli.records import NOW, RECORD

JOB: dict[str, Any] = {"metadata": {"name": "train-singlepod"}, "spec": {}, "status": {}}
GOES = replace(RECORD, ttl=Ttl(3600, "image", "claim", "/data/runs/dev", {}))
STOPPED = replace(RECORD, suspended_by=RECORD.stack)
LONG_AGO = NOW - timedelta(days=1)
STEPPED = Progress(step=20, of=4000, stepped_at=NOW - timedelta(seconds=2), loss="4.0")


def job(condition: str = "", **spec: object) -> dict[str, Any]:
    """Return a Job with this condition and spec."""
    conditions = [{"type": condition, "status": "True", "reason": "BackoffLimitExceeded"}]
    return {**JOB, "spec": spec, "status": {"conditions": conditions if condition else []}}


BY_COMMAND: dict[str, Any] = {
    "suspend": VOLCANO.suspend(cast(Any, None)),
    "over": (*VOLCANO.done, *VOLCANO.failed),
}


def of_volcano(phase: str) -> dict[str, Any]:
    """Return a Job of Volcano, which has a phase and no conditions of the usual form."""
    return {**JOB, "status": {"state": {"phase": phase}, "conditions": [{"status": phase}]}}


def pod(phase: str = "Running", name: str = "train-singlepod-x", **status: Any) -> dict[str, Any]:
    """Return a pod in this phase, with these further keys of its status."""
    metadata = {"name": name, "creationTimestamp": "2026-11-22T06:58:00Z"}
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, **status}}


UNSCHEDULABLE: dict[str, Any] = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        }
    ]
}
NO_IMAGE: dict[str, Any] = {
    "containerStatuses": [
        {"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
    ]
}
KILLED_FOR_MEMORY = {"exitCode": 137, "reason": "OOMKilled"}


def out_of_memory(state: dict[str, Any], restarts: int = 1) -> dict[str, Any]:
    """Return the status of a container whose predecessor was killed for lack of memory."""
    last = {"terminated": KILLED_FOR_MEMORY}
    return {"restartCount": restarts, "state": state, "lastState": last}


CRASHES: dict[str, Any] = {"containerStatuses": [{"restartCount": 3, "state": {"running": {}}}]}


def lost(seconds_ago: float) -> Progress:
    """Return what a node other than the first has written about ranks of its own that were lost."""
    return Progress(trouble="killed?", trouble_at=NOW - timedelta(seconds=seconds_ago))


READY = [{"type": "Ready", "status": "True"}]


def stepped_every(seconds: float, last: float) -> Progress:
    """Return steps that came regularly, the last one `last` seconds ago."""
    times = [NOW - timedelta(seconds=last + seconds * back) for back in range(4)]
    return Progress(20, 40, times[0], stepped_before=tuple(reversed(times[1:])))


def saving(stepped: Progress, seconds: float, holds: bool = True) -> Progress:
    """Return this progress with a save that has been under way for so many seconds."""
    since = NOW - timedelta(seconds=seconds)
    return replace(stepped, saving_step=20, saving_at=since, saving_holds=holds)


CASES: dict[str, tuple[Seen, str, str]] = {
    "its workload is not made yet": (
        Seen(replace(RECORD, since=NOW), None, (), {}),
        "starting",
        "either its `pulumi up` is just about to make it, or somebody has deleted it",
    ),
    "its workload was deleted": (
        Seen(RECORD, None, (), {}),
        "gone",
        "somebody has deleted it. `pulumi refresh` and then `pulumi up` make it again",
    ),
    "it had finished before its workload went": (
        Seen(replace(GOES, how_ended="finished: all 40 steps are done"), None, (), {}),
        "finished",
        "all 40 steps are done; Job train-singlepod was removed 3600 s after that",
    ),
    "it had failed before its workload went": (
        Seen(replace(GOES, how_ended="failed: the loss is nan"), None, (), {}),
        "failed",
        "`pulumi refresh` and then `pulumi up` make it again from its last checkpoint",
    ),
    "its workload went, and nobody has read how it ended": (
        Seen(GOES, None, (), {}),
        "gone",
        "How the run ended was not seen: ./disttrain status of its stack reads it on the volume",
    ),
    "it is made anew after its end": (
        Seen(replace(GOES, since=NOW), None, (), {}),
        "starting",
        "either its `pulumi up` is just about to make it, or somebody has deleted it",
    ),
    "Kueue counts another machine for it": (
        Seen(
            RECORD, job(), (pod(),), {"train-singlepod-x": STEPPED}, other_machines="Kueue counts b"
        ),
        "training",
        "Kueue counts b",
    ),
    "it was replaced": (
        Seen(RECORD, job(suspend=True), (), {}),
        "suspended",
        "its next `pulumi up` resumes it",
    ),
    "it was stopped after it had saved": (
        Seen(replace(STOPPED, saved_step="120"), job(suspend=True), (), {}),
        "stopped",
        "it has saved step 120; ./disttrain resume brings it back",
    ),
    "it was stopped, and nobody saw what it saved": (
        Seen(STOPPED, job(suspend=True), (), {}),
        "stopped",
        "./disttrain resume brings it back",
    ),
    "Kueue has taken it out of its queue": (
        Seen(RECORD, job(suspend=True), (), {}, out_of_queue="Kueue has taken it out: too long"),
        "stopped",
        "Kueue has taken it out: too long; ./disttrain resume puts it back",
    ),
    "it waits in a queue": (
        Seen(RECORD, job(suspend=True), (), {}, queued=InQueue(NOW, "in queue gpus: full")),
        "queued",
        "in queue gpus: full",
    ),
    "it has completed": (Seen(RECORD, job("Complete"), (), {}), "finished", ""),
    "its job was given up": (Seen(RECORD, job("Failed"), (), {}), "failed", "BackoffLimitExceeded"),
    "its job was given up, with last words": (
        Seen(RECORD, job("Failed"), [pod("Failed")], {"a": Progress(failed="no room to write")}),
        "failed",
        "no room to write",
    ),
    "its pods hold after the end": (
        Seen(RECORD, job(), [pod()], {"a": Progress(finished="step 40, loss 3.1")}),
        "finished",
        "step 40, loss 3.1",
    ),
    "it has no pod yet": (Seen(RECORD, job(), (), {}), "waiting", "no pod yet"),
    "its gang does not fit": (
        Seen(RECORD, of_volcano("Pending"), (), {}, no_pods="in queue default of Volcano: no room"),
        "waiting",
        "no pod yet; in queue default of Volcano: no room",
    ),
    "a quota has room for one of its pods": (
        Seen(RECORD, job(), [pod()], {"a": Progress(waits_for="node 1")}, no_pods="over quota"),
        "starting",
        "node 1; over quota",
    ),
    "Volcano was told to stop it": (
        Seen(replace(STOPPED, **BY_COMMAND), of_volcano("Aborting"), [pod()], {"a": STEPPED}),
        "stopped",
        "./disttrain resume brings it back",
    ),
    "Volcano has stopped it for another run": (
        Seen(replace(RECORD, **BY_COMMAND), of_volcano("Aborted"), (), {}),
        "suspended",
        "its next `pulumi up` resumes it",
    ),
    "Volcano has given it up": (
        Seen(replace(RECORD, **BY_COMMAND), of_volcano("Failed"), (), {}),
        "failed",
        "Failed",
    ),
    "Volcano has ended it for a fatal error": (
        Seen(
            replace(RECORD, **BY_COMMAND),
            of_volcano("Terminated"),
            [pod("Failed")],
            {"a": Progress(failed="no room to write")},
        ),
        "failed",
        "no room to write",
    ),
    "it has completed under Volcano": (
        Seen(replace(RECORD, **BY_COMMAND), of_volcano("Completed"), (), {}),
        "finished",
        "",
    ),
    "a pod finds no GPU": (
        Seen(RECORD, job(), [pod("Pending", **UNSCHEDULABLE)], {}),
        "waiting",
        "Insufficient nvidia.com/gpu",
    ),
    "the image is not there": (
        Seen(RECORD, job(), [pod("Pending", **NO_IMAGE)], {}),
        "failing",
        "ErrImagePull",
    ),
    "a pod crashes again and again": (
        Seen(RECORD, job(), [pod(**CRASHES)], {"a": STEPPED}),
        "failing",
        "was started 4 times",
    ),
    "it trains, and was started many times in the weeks before": (
        Seen(RECORD, job(), [pod(**CRASHES, conditions=READY)], {"a": STEPPED}),
        "training",
        "",
    ),
    "the second of two pods crashes again and again": (
        Seen(RECORD, job(), [pod(), pod(name="second", **CRASHES)], {"a": STEPPED}),
        "failing",
        "pod second was started 4 times",
    ),
    "one of two pods waits for a node": (
        Seen(RECORD, job(), [pod(), pod("Pending", "second", **UNSCHEDULABLE)], {"a": Progress()}),
        "waiting",
        "second Pending",
    ),
    "one of two pods waits for a node, and no step was made since": (
        Seen(
            RECORD,
            job(),
            [pod(), pod("Pending", "second", **UNSCHEDULABLE)],
            {"a": replace(STEPPED, stepped_at=LONG_AGO)},
        ),
        "waiting",
        "second Pending",
    ),
    "one of two pods waits for a node, and the other goes on": (
        Seen(RECORD, job(), [pod(), pod("Pending", "second", **UNSCHEDULABLE)], {"a": STEPPED}),
        "training",
        "with 1 of 2 pods: second Pending (Unschedulable: 0/1 nodes",
    ),
    "its pods wait for another": (
        Seen(RECORD, job(), [pod()], {"a": Progress(waits_for="waiting for node(s) 2 to join")}),
        "starting",
        "waiting for node(s) 2 to join",
    ),
    "it is a program whose steps are not seen": (
        Seen(RECORD, job(), [pod()], {"a": Progress(unseen="its steps are not seen, because")}),
        "training",
        "its steps are not seen, because",
    ),
    "its lines cannot be read": (
        Seen(RECORD, job(), [pod()], {}, "the lines of pod x cannot be read: 502"),
        "unknown",
        "cannot be read: 502",
    ),
    "it trains": (Seen(RECORD, job(), [pod()], {"a": STEPPED}), "training", ""),
    "a pod was killed for lack of memory, and starts again": (
        Seen(
            RECORD,
            job(),
            [pod(containerStatuses=[out_of_memory({"running": {}})])],
            {"a": Progress(waits_for="waiting for node 1")},
        ),
        "starting",
        "waiting for node 1; pod train-singlepod-x was killed for lack of memory (OOMKilled): "
        "give each rank more memory (memoryLimitPerRank",
    ),
    "its pods are killed for lack of memory again and again": (
        Seen(RECORD, job(), [pod(containerStatuses=[out_of_memory({"waiting": {}}, 4)])], {}),
        "failing",
        "was started 5 times and killed for lack of memory (OOMKilled): give each ",
    ),
    "it has failed, as its pod was killed for lack of memory": (
        Seen(
            RECORD,
            job("Failed"),
            [pod("Failed", containerStatuses=[{"state": {"terminated": KILLED_FOR_MEMORY}}])],
            {},
        ),
        "failed",
        "pod train-singlepod-x was killed for lack of memory (OOMKilled)",
    ),
    "it trains again after a pod was killed for lack of memory": (
        Seen(
            RECORD, job(), [pod(containerStatuses=[out_of_memory({"running": {}})])], {"a": STEPPED}
        ),
        "training",
        "",
    ),
    "it was cut off a moment ago": (
        Seen(RECORD, job(), [pod()], {"a": Progress(step=20, of=40, trouble="node 1 is lost")}),
        "recovering",
        "node 1 is lost",
    ),
    "another node was lost before the last step": (
        Seen(RECORD, job(), [pod(), pod(name="b")], {"a": STEPPED, "b": lost(seconds_ago=9)}),
        "training",
        "",
    ),
    "another node was lost after the last step": (
        Seen(RECORD, job(), [pod(), pod(name="b")], {"a": STEPPED, "b": lost(seconds_ago=1)}),
        "recovering",
        "killed?",
    ),
    "no step has come for a while": (
        Seen(RECORD, job(), [pod()], {"a": stepped_every(seconds=2, last=11)}),
        "quiet",
        "one came every 2.0 s",
    ),
    "a step is somewhat late": (
        Seen(RECORD, job(), [pod()], {"a": stepped_every(seconds=2, last=9)}),
        "training",
        "",
    ),
    "steps are fast, and clocks differ": (
        Seen(RECORD, job(), [pod()], {"a": stepped_every(seconds=0.01, last=4)}),
        "training",
        "",
    ),
    "training waits for a checkpoint": (
        Seen(RECORD, job(), [pod()], {"a": saving(stepped_every(seconds=2, last=60), 59)}),
        "saving",
        "checkpoint step 20 is being written, and training waits for it",
    ),
    "a checkpoint is written while it trains": (
        Seen(RECORD, job(), [pod()], {"a": saving(STEPPED, 9, holds=False)}),
        "training",
        "checkpoint step 20 is being written",
    ),
    "no step has come for a while, and not because of the save": (
        Seen(RECORD, job(), [pod()], {"a": saving(stepped_every(2, last=11), 10, holds=False)}),
        "quiet",
        "one came every 2.0 s; checkpoint step 20 is being written",
    ),
    "a save never ends": (
        Seen(
            RECORD,
            job(),
            [pod()],
            {"a": saving(stepped_every(2, last=STALLED_SECONDS + 1), STALLED_SECONDS)},
        ),
        "stalled",
        "reported any more; checkpoint step 20 is being written, and training waits for it",
    ),
    "a rank holds up the others in a save": (
        Seen(
            RECORD,
            job(),
            [pod()],
            {"a": saving(replace(STEPPED, hang="rank 1 is stopped"), 60)},
        ),
        "stalled",
        "rank 1 is stopped",
    ),
    "a rank was lost in a save": (
        Seen(RECORD, job(), [pod()], {"a": saving(replace(STEPPED, trouble="killed?"), 60)}),
        "recovering",
        "killed?",
    ),
    "it was told to stop, and saves": (
        Seen(STOPPED, job(suspend=True), [pod()], {"a": saving(STEPPED, 9)}),
        "saving",
        "checkpoint step 20 is being written, and training waits for it; then it ends",
    ),
    "work of a higher priority has its place, and it saves": (
        Seen(
            RECORD,
            job(suspend=True),
            [pod()],
            {"a": saving(STEPPED, 9)},
            queued=InQueue(NOW, "in queue gpus: preempted"),
        ),
        "saving",
        "training waits for it; then it waits in queue gpus: preempted",
    ),
    "work of a higher priority has its place, and it has saved": (
        Seen(
            RECORD,
            job(suspend=True),
            [pod("Succeeded")],
            {"a": saving(STEPPED, 9)},
            queued=InQueue(NOW, "in queue gpus: preempted"),
        ),
        "queued",
        "in queue gpus: preempted",
    ),
    "it was told to stop, and its save never ends": (
        Seen(STOPPED, job(suspend=True), [pod()], {"a": saving(STEPPED, STALLED_SECONDS + 1)}),
        "stopped",
        "./disttrain resume brings it back",
    ),
    "it was stopped in a save, and its pods are gone": (
        Seen(STOPPED, job(suspend=True), [pod("Failed")], {"a": saving(STEPPED, 9)}),
        "stopped",
        "./disttrain resume brings it back",
    ),
    "one rank holds up the others": (
        Seen(RECORD, job(), [pod()], {"a": Progress(20, 40, NOW, hang="rank 1 is stopped")}),
        "stalled",
        "rank 1 is stopped",
    ),
    "no step comes any more": (
        Seen(
            RECORD,
            job(),
            [pod()],
            {"a": Progress(20, 40, NOW - timedelta(seconds=STALLED_SECONDS + 1))},
        ),
        "stalled",
        "no step is reported any more",
    ),
}


def test_lost_round_recovers_until_the_next_one_steps() -> None:
    """A run whose round is lost is shown as recovering until the next round makes a step. Node 0
    may still print a step of before the loss after it.
    """
    at = NOW - timedelta(seconds=5)
    lost = replace(STEPPED, trouble="node 1 is lost", trouble_at=at, round_is_lost=True)
    found = judge_run(Seen(RECORD, job(), [pod()], {"a": lost}), NOW)
    assert (found.state, found.detail) == ("recovering", "node 1 is lost")


@pytest.mark.parametrize("case", CASES)
def test_each_state_has_its_word_and_reason(case: str) -> None:
    """Each state of a run is shown by its word and the reason for it."""
    seen, state, detail = CASES[case]
    found = judge_run(seen, NOW)
    assert found.state == state
    assert detail in found.detail


def test_save_is_counted_from_its_begin() -> None:
    """The time of a save is counted from its beginning, whether training waits for it or not."""
    for holds in (True, False):
        progress = saving(STEPPED, 9, holds)
        found = judge_run(Seen(RECORD, job(), [pod()], {"a": progress}), NOW)
        assert found.since == progress.saving_at


def test_progress_is_of_the_pod_that_is_the_furthest() -> None:
    """The progress of a run is that of the pod whose lines name a step. Only one node
    prints steps.
    """
    seen = Seen(RECORD, job(), [pod()], {"a": Progress(), "b": STEPPED})
    assert judge_run(seen, NOW).progress == STEPPED


def node(name: str, ready: str = "True", gpus: int = 4) -> dict[str, Any]:
    """Return a node with so many GPUs, and whether it is ready."""
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return {
        "metadata": {"name": name},
        "status": {**status, "allocatable": {"cpu": "8", "nvidia.com/gpu": str(gpus)}},
    }


def gpu_pod(phase: str, node_name: str | None, gpus: int) -> dict[str, Any]:
    """Return a pod on this node that holds so many GPUs."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    spec = {"containers": [limits], **({"nodeName": node_name} if node_name else {})}
    return {"metadata": {"name": "x"}, "spec": spec, "status": {"phase": phase}}


def test_gpus_are_counted_where_pods_hold_them() -> None:
    """GPUs count as in use if a pod on a node holds them that has not ended. Idle GPUs of a lost
    node are not shown as idle, because nobody could use them.
    """
    pods = [gpu_pod("Running", "a", 3), gpu_pod("Succeeded", "a", 4), gpu_pod("Pending", None, 4)]
    found = judge_platform([node("a"), node("b", "Unknown")], pods)
    assert (found.nodes, found.not_ready, found.gpus, found.gpus_used) == (2, ("b",), 8, 3)
    assert found.gpus_idle == {"a": 1}  # nobody can use the GPUs of b, which is lost
    assert judge_platform([node("a"), node("b")], pods).gpus_idle == {"a": 1, "b": 4}
    assert judge_platform([node("a")], [gpu_pod("Running", "a", 4)]).gpus_idle == {}


def test_only_gpus_are_counted_as_gpus() -> None:
    """Other resources with NVIDIA's name do not count as GPUs. NVIDIA's Network Operator offers
    network cards by this name, and HAMi the memory of GPUs.
    """
    others = {"nvidia.com/hostdev": "8", "nvidia.com/gpumem": "81920", "rdma/hca": "8"}
    gpus = {"nvidia.com/gpu": "2", "nvidia.com/gpu.shared": "4", "nvidia.com/mig-1g.10gb": "7"}
    offers = {**node("a"), "status": {"allocatable": {**others, **gpus}}}
    pod = gpu_pod("Running", "a", 2)
    pod["spec"]["containers"][0]["resources"]["limits"].update(others)
    found = judge_platform([offers], [pod])
    assert (found.gpus, found.gpus_used) == (13, 2)


def test_thousand_time_slices_are_counted() -> None:
    """A node with 1000 time slices offers `1k`, as Kubernetes writes it. `status` and `verify
    --nodes` count them, and do not end with an error.
    """
    offers = {"metadata": {"name": "a"}, "status": {"allocatable": {"nvidia.com/gpu": "1k"}}}
    assert judge_platform([offers], [gpu_pod("Running", "a", 3)]).gpus == 1000
    assert [each.problem for each in nodes_to_test([offers], [], {})] == ["it is not Ready"]


def test_what_may_not_be_read_is_not_counted() -> None:
    """Numbers that this user may not read are not shown as 0."""
    assert judge_platform(None, None, "nodes is forbidden").nodes is None
    assert judge_platform([node("a")], None, "pods is forbidden").gpus_used is None
    assert judge_platform([node("a")], None, "pods is forbidden").gpus_idle == {}


def test_transport_of_any_pod_is_that_of_the_run() -> None:
    """A warning about the transport is shown whichever pod tells it. Each pod tells that of its own
    ranks, and only node 0 reports steps.
    """
    told = {"a": STEPPED, "b": Progress(transport="rank 1 by NCCL over TCP sockets")}
    seen = Seen(RECORD, JOB, [pod(name="a"), pod(name="b")], told)
    assert judge_run(seen, NOW).progress == replace(STEPPED, transport=told["b"].transport)


def test_ranks_that_any_pod_calls_strange_are_shown() -> None:
    """A warning about a program's own ranks is shown whichever pod tells it: the second pod does,
    and the steps come from the first one.
    """
    told = {"a": STEPPED, "b": Progress(own_ranks="a rank 0 of 8 runs in this pod too")}
    seen = Seen(RECORD, job(), [pod()], told)
    assert judge_run(seen, NOW).progress == replace(STEPPED, own_ranks=told["b"].own_ranks)
