"""Runs in a queue of Kueue, with Kueue's own controller.

They wait, are stopped and preempted, and have their pods in one rack. The tests build on each other
in file order: the last ones change the queue and the number of nodes.
"""

from collections.abc import Iterator

import pytest

from infra.kube.workload import Workload
from infra.workloads import WORKLOADS
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.controllers.kueue import KUEUE
from sandbox.follow import train_points
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import (
    changes,
    people_run,
    states,
    training_pods,
    wait_for_first_checkpoint,
    weights,
)
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for
from tests.e2e.queue_guest import CPU, QUEUE, URGENT, end_others, start_others
from tests.e2e.queued_runs import MORE_STEPS, RANKS, SPENT, shape_of, trained_for

pytestmark = pytest.mark.in_order

QUEUED = ("indexed-job", "jobset", "trainjob", "pytorchjob", "mpijob")
NEEDED = ("jobset", "trainer", "training-operator", "mpi-operator")
NAME = "e2e-queue"
FIRST, WAITING = "e2e-first-of-queue", "e2e-waiting"
CLUSTER_QUEUE = "disttrain-gpus"
MADE = {
    "queues.name": QUEUE,
    "queues.quota.cpu": CPU,  # the quota of memory is all that the node offers
    f"queues.priorities.{URGENT}": "1000",
}
KINDS = ("localqueue", "clusterqueue", "resourceflavor", "workloadpriorityclass", "topology")
ROW, RACK, HOST = "example.com/row", "example.com/rack", "kubernetes.io/hostname"


@pytest.fixture(scope="module")
def kueue(lab: Lab) -> Iterator[Lab]:
    """Yield the lab with the controllers; nothing of a queue may be left in it afterwards."""
    with running(lab.cluster, [*(CONTROLLERS[name] for name in NEEDED), KUEUE]):
        yield lab
        assert lab.uids(*KINDS) == {}
    hooks = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
    left = lab.uids("customresourcedefinition", "clusterrole", "clusterrolebinding", *hooks)
    assert not [name for name in left if "kueue" in name]


@pytest.fixture(scope="module")
def stack(kueue: Lab) -> Iterator[Stack]:
    """Yield a stack that makes a queue with room for one run.

    Its own run of multi-pod is in no queue, and is finished.
    """
    settings = {**run_settings(FIRST, 10), **MADE, "pods": str(RANKS), "processesPerPod": "1"}
    settings |= {"podCidr": "10.244.0.0/16", "storageOptions.shared": "true"}  # for racks
    made = kueue.stack(NAME, "sandbox", {**settings, "topology": "multi-pod"})
    made.up()
    kueue.wait_done(FIRST)
    yield made
    made.destroy()


def reason(lab: Lab, stack: Stack) -> str:
    """Return the output of `./disttrain status`, which has the reason below the run's line."""
    return people_run(lab, stack, f"./disttrain status --stack {stack.name}")


def test_queue_that_cannot_take_the_run_is_refused(kueue: Lab, stack: Stack) -> None:
    """`up` refuses a queue that is not there or is stopped, and a priority that is not there.

    Nothing is made before that, and the finished run of before is left as it is.
    """
    before = kueue.uids("statefulset", "job", "configmap")
    stack.set_all({"topology": "indexed-job", "queue": "nowhere", **run_settings(WAITING, 10)})
    with pytest.raises(PulumiFailedError) as refused:
        stack.up()
    said = " ".join(refused.value.args[0].split())
    assert "nothing was made: - queue: 'nowhere' cannot be used: namespace disttrain" in said
    assert f"Set one of {QUEUE}" in said
    stack.set_all({"queue": QUEUE, "queuePriority": "no-such-class"})
    kueue.kubectl("patch", "localqueue", QUEUE, "--type=merge", '-p={"spec":{"stopPolicy":"Hold"}}')
    try:
        with pytest.raises(PulumiFailedError) as refused:
            stack.up()
    finally:
        opened = '-p={"spec":{"stopPolicy":"None"}}'
        kueue.kubectl("patch", "localqueue", QUEUE, "--type=merge", opened)
    said = " ".join(refused.value.args[0].split())
    assert f"LocalQueue {QUEUE} is stopped (stopPolicy: Hold)" in said
    assert f"no such WorkloadPriorityClass. Set one of {URGENT}" in said
    assert kueue.uids("statefulset", "job", "configmap") == before
    stack.set("queuePriority", None)


def test_platform_does_not_go_with_others_work_in_its_queue(kueue: Lab, stack: Stack) -> None:
    """`destroy` of a platform names the work of others in its queue, and deletes nothing."""
    start_others(kueue, "guest")
    made = kueue.uids(*KINDS, "job", "namespace")
    with pytest.raises(PulumiFailedError) as refused:
        stack.destroy()
    assert f"Job guest is in queue {QUEUE}" in " ".join(refused.value.args[0].split())
    assert kueue.uids(*KINDS, "job", "namespace") == made
    end_others(kueue, "guest")


def test_waiting_run_says_its_place_and_can_be_stopped(kueue: Lab, stack: Stack) -> None:
    """`up` of a run that has to wait in its queue ends well, and says its place and who holds the
    quota.

    `status` has the same words. `stop` and `resume` leave the queue's rules in force.
    """
    lab = kueue
    start_others(lab, "holder")
    stack.set_all({"topology": "indexed-job", "queue": QUEUE, **run_settings(WAITING, ENDLESS)})
    output = " ".join(stack.up().split())
    place = f"waits in queue {QUEUE} (place 1 of 1 in ClusterQueue {CLUSTER_QUEUE})"
    held = f"held by Job holder in namespace {NAMESPACE} (priority 0)"
    assert place in output
    assert held in output
    shown = stack.output("queuePlace")
    assert place in shown
    assert held in shown
    assert states(lab, stack)[NAME] == "queued"
    told = reason(lab, stack)
    assert place.removeprefix("waits ") in told
    assert held in told
    assert training_pods(lab, stack) == []
    output = stack.up("--expect-no-changes")
    assert set(changes(output)) == {"unchanged"}
    assert f"running Job train-indexed {place}: " in " ".join(output.split())
    assert stack.output("queuePlace").startswith(f"when pulumi up began: Job train-indexed {place}")
    people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    assert states(lab, stack)[NAME] == "stopped"
    end_others(lab, "holder")
    start_others(lab, "next")  # has the quota, so Kueue has not given it to our run
    assert states(lab, stack)[NAME] == "stopped"
    people_run(lab, stack, f"./disttrain resume --stack {stack.name}")
    assert states(lab, stack)[NAME] == "queued"
    end_others(lab, "next")
    wait_for("its first step", lambda: lab.losses(WAITING), 600)
    wait_for_first_checkpoint(lab, WAITING)
    said = people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    saved = max(lab.losses(WAITING))
    assert f"it has saved step {saved}." in said
    assert training_pods(lab, stack) == []
    assert states(lab, stack)[NAME] == "stopped"
    output = stack.up()  # the same as for a run without a queue
    assert "was suspended and is resumed" in output
    wait_for("further steps", lambda: max(lab.losses(WAITING)) > saved, 300)
    stack.refresh()
    stack.preview("--expect-no-changes")


@pytest.mark.parametrize("topology", QUEUED)
def test_run_that_kueue_takes_out_says_why(kueue: Lab, stack: Stack, topology: str) -> None:
    """If Kueue takes a run out of its queue, status says why, and `up` brings the run back.

    The reason here is the run's longest time, which somebody has written into a label of the
    workload.
    """
    lab, run, kind = kueue, f"e2e-taken-out-{topology}", WORKLOADS[topology]
    stack.set_all({"topology": topology, "queue": QUEUE, **shape_of(topology)})
    stack.set_all(run_settings(run, ENDLESS))
    stack.up()
    wait_for_first_checkpoint(lab, run)
    people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    named = Workload(kind.api_version, kind.kind, kind.object_name).typed, kind.object_name
    longest = "kueue.x-k8s.io/max-exec-time-seconds"
    lab.kubectl("label", *named, longest + "=1")
    people_run(lab, stack, f"./disttrain resume --stack {stack.name}")
    why = f"Kueue has taken it out of queue {QUEUE}: The workload is deactivated due to exceeding"
    wait_for("Kueue to take it out", lambda: why in " ".join(reason(lab, stack).split()), 300)
    assert states(lab, stack)[NAME] == "stopped"
    wait_for("its pods to go", lambda: not training_pods(lab, stack), 300)
    lab.kubectl("label", *named, longest + "-")

    def limits() -> list[object]:
        specs = [each["spec"] for each in lab.get("workload")["items"]]
        return [spec for spec in specs if spec.get("maximumExecutionTimeSeconds")]

    wait_for("Kueue to see that there is no longest time", lambda: not limits(), 60)
    saved = max(lab.losses(run))
    assert "was suspended and is resumed" in stack.up()
    wait_for("further steps", lambda: max(lab.losses(run)) > saved, 300)


@pytest.mark.parametrize("topology", ["single-pod", *QUEUED])
def test_preempted_run_loses_no_step_and_no_restart(
    kueue: Lab, stack: Stack, topology: str
) -> None:
    """A preempted run saves, makes place and comes back, and loses neither a step nor a restart.

    Its weights are the same, bit for bit, as those of an undisturbed run of multi-pod. The run has
    no end until it has come back, so that it is preempted on its way even on a fast machine. Its
    last step then decides how long the undisturbed run is.
    """
    lab, run = kueue, f"e2e-preempted-{topology}"
    in_queue = {"topology": topology, "queue": QUEUE, **shape_of(topology)}
    stack.set_all({**in_queue, **trained_for(run, ENDLESS)})
    stack.up()
    wait_for_first_checkpoint(lab, run)
    start_others(lab, "urgent", URGENT)
    try:
        wait_for("its pods to go", lambda: not training_pods(lab, stack), 300)
        saved = max(lab.losses(run))
        assert states(lab, stack)[NAME] == "queued"
        told = reason(lab, stack)
        assert "it was put back (Preempted)" in told
        assert f"held by Job urgent in namespace {NAMESPACE} (priority 1000)" in told
        assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
        assert "it was put back (Preempted)" in stack.output("queuePlace")
        stack.refresh()
        stack.preview("--expect-no-changes")
    finally:
        end_others(lab, "urgent")
    wait_for("further steps", lambda: max(lab.losses(run)) > saved, 300)
    kind = WORKLOADS[topology]
    status = lab.get(kind.kind.lower(), kind.object_name)["status"]
    assert {field: status.get(field, 0) for field in SPENT} == dict.fromkeys(SPENT, 0)
    people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    steps = max(lab.losses(run)) + MORE_STEPS
    stack.set_all(trained_for(run, steps))
    stack.up()
    lab.wait_done(run)
    written = [point["step"] for point in train_points(lab.run_dir(run))]
    assert written == list(range(1, steps + 1))  # no step was lost or done again
    wait_for("the end as Kubernetes sees it", lambda: states(lab, stack)[NAME] == "finished", 120)
    reference = f"e2e-undisturbed-{topology}"
    alone = {"topology": "multi-pod", "queue": None, **shape_of("multi-pod")}
    stack.set_all({**alone, **trained_for(reference, steps)})
    stack.up()
    lab.wait_done(reference)
    assert weights(lab, run, steps) == weights(lab, reference, steps) != {}


@pytest.fixture(scope="module")
def racks(kueue: Lab, stack: Stack) -> Iterator[dict[str, str]]:
    """Yield the rack of each of three nodes; the first node is alone in its own.

    The queue knows racks, and has the quota of all nodes. No node has room for two pods. While the
    racks' label is missing on the nodes, `up` is refused.
    """
    lab = kueue
    lab.cluster.up(3)
    first = f"sandbox-{lab.cluster.name}"
    names = sorted(node["metadata"]["name"] for node in lab.get("nodes")["items"])
    found = {name: "alone" if name == first else "pair" for name in names}
    stack.set_all(
        {
            "queues.quota": None,
            "queues.topology[0]": RACK,
            "queues.topology[1]": HOST,
            "queue": QUEUE,
            "topology": "indexed-job",
            "cpuPerRank": lab.more_than_half_a_node(),
        }
    )
    with pytest.raises(PulumiFailedError) as refused:
        stack.up()
    said = " ".join(refused.value.args[0].split())
    assert f"queues.topology[0]: '{RACK}' cannot be used: no node has this label" in said
    assert f"It is missing on {', '.join(names)}." in said
    for name, rack in found.items():
        lab.kubectl("label", "node", name, f"{RACK}={rack}", f"{ROW}=one")
    try:
        yield found
    finally:
        lab.cluster.up(1)
        lab.kubectl("label", "node", first, f"{RACK}-", f"{ROW}-")


ONE_RACK = {"placement": "one-place", "placementLabel": RACK, "pods": "2"}
SCATTERED = {"placement": "packed", "placementLabel": HOST, "pods": "3"}
PLACED = [
    *((kind, ONE_RACK, ["pair", "pair"]) for kind in QUEUED),
    ("indexed-job", SCATTERED, ["alone", "pair", "pair"]),
]


@pytest.mark.parametrize(("topology", "wish", "places"), PLACED)
def test_pods_of_a_run_are_in_one_rack(
    kueue: Lab,
    stack: Stack,
    racks: dict[str, str],
    topology: str,
    wish: dict[str, str],
    places: list[str],
) -> None:
    """With `one-place` all pods of a run are in one rack, and a node of another rack gets none.

    With `packed` a run that fits in no rack is scattered. Kueue writes the placement into the pods'
    template, and the next preview does not take this for a change.
    """
    lab, run = kueue, f"e2e-racks-{topology}-{wish['pods']}"
    stack.set_all({"topology": topology, **wish, **run_settings(run, ENDLESS)})
    stack.up()
    pods = [lab.get(name) for name in training_pods(lab, stack)]
    assert sorted(racks[pod["spec"]["nodeName"]] for pod in pods) == places
    assert lab.losses(run)
    stack.refresh()
    stack.preview("--expect-no-changes")


def test_topology_changes_once_nothing_has_its_place_by_it(
    kueue: Lab, stack: Stack, racks: dict[str, str]
) -> None:
    """`queues.topology` cannot change while a run has its place by it, and can change after that.

    If a run fits in no rack then, it waits, and `up` and `status` have Kueue's words for it.
    """
    lab, before = kueue, kueue.uids("topology", "resourceflavor")
    levels = {f"queues.topology[{place}]": label for place, label in enumerate((ROW, RACK, HOST))}
    stack.set_all(levels)
    with pytest.raises(PulumiFailedError) as refused:
        stack.up()
    assert "it cannot change now: Job train-indexed has its place" in " ".join(
        refused.value.args[0].split()
    )
    assert lab.uids("topology", "resourceflavor") == before
    people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    stack.set_all({"topology": "indexed-job", **ONE_RACK, "pods": str(len(racks))})
    output = " ".join(stack.up().split())
    words = "allows to fit only 2 out of 3 pod(s)"
    assert "waits in queue gpus" in output
    assert words in output
    assert states(lab, stack, nodes=len(racks))[NAME] == "queued"
    assert words in " ".join(reason(lab, stack).split())
    assert training_pods(lab, stack) == []
    after = lab.uids("topology", "resourceflavor")
    assert len(after) == len(before)
    assert not after.keys() & before.keys()
