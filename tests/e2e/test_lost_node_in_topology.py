"""A machine is lost under a run that Kueue has placed by racks, and Kueue replaces it.

Kueue writes a machine into each pod, so no scheduler can move a pod. Kueue itself has to choose
another machine, which is in the same rack if the run asks for that.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.queues.kueue import kueue_workload
from infra.kube.queues.kueue_machines import assigned_machines
from infra.workloads import WORKLOADS
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.controllers.kueue import KUEUE
from sandbox.stack import Stack
from tests.e2e.asking import changes, people_run, training_pods
from tests.e2e.lab import NAMESPACE, Lab, run_settings, wait_for
from tests.e2e.lost_node import SETTINGS, STEPS, lose_a_node, places, seen, start
from tests.e2e.queue_guest import QUEUE

NEEDED = ("jobset", "trainer", "training-operator", "mpi-operator")
QUEUED = ("indexed-job", "jobset", "trainjob", "pytorchjob", "mpijob")
NODES = 4
NAME = "e2e-lost-racks"
ROOM_FOR_TWO = "allows to fit only 2 out of 3 pod(s)"  # Kueue's words
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
ONE_RACK = {"placement": "one-place", "placementLabel": RACK}
# Kueue places launcher and workers together. But when the launcher's node or a worker's is lost, it
# may choose another one outside their rack (kueue#6957). A stop and a resume put that right.
GROUPS = ("mpijob",)
PREFERRED = {"placement": "packed", "placementLabel": RACK}
REPLACED = [
    *((kind, ONE_RACK, 2, ["three", "three"]) for kind in QUEUED),
    *((kind, PREFERRED, 3, ["alone", "three", "three"]) for kind in ("indexed-job", "jobset")),
]

pytestmark = pytest.mark.in_depth


@pytest.fixture(scope="module")
def racks(lab: Lab) -> Iterator[dict[str, str]]:
    """Yield the rack of each node: the first node is alone in its rack, and the three others share
    one.
    """
    lab.cluster.up(NODES)
    try:
        first = f"sandbox-{lab.cluster.name}"
        names = [node["metadata"]["name"] for node in lab.get("nodes")["items"]]
        found = {name: "alone" if name == first else "three" for name in names}
        for name, rack in found.items():
            lab.kubectl("label", "node", name, f"{RACK}={rack}")
        with running(lab.cluster, [*(CONTROLLERS[name] for name in NEEDED), KUEUE]):
            yield found
    finally:
        lab.cluster.up(1)
        lab.kubectl("label", "node", f"sandbox-{lab.cluster.name}", f"{RACK}-")


@pytest.fixture(scope="module")
def stack(lab: Lab, racks: dict[str, str]) -> Iterator[Stack]:
    assert len(racks) == NODES
    queue = {
        "queues.name": QUEUE,
        "queues.topology[0]": RACK,
        "queues.topology[1]": HOST,
        "queue": QUEUE,
        "lostNodes": "replace",
    }
    made = lab.stack(NAME, "sandbox", {**run_settings(NAME, STEPS), **SETTINGS, **queue})
    yield made
    made.destroy()


def counted(lab: Lab, topology: str) -> Counter[str]:
    """Return how many pods of the run Kueue counts on each machine."""
    kind = WORKLOADS[topology]
    item = lab.get(kind.kind.lower(), kind.object_name)
    api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))
    own = kueue_workload(api, NAMESPACE, item)
    assert own is not None
    return assigned_machines(own)


@pytest.mark.timeout(1200)  # it waits for steps twice, and half a minute until a node is missed
@pytest.mark.parametrize(("topology", "wish", "pods", "there"), REPLACED)
def test_lost_node_is_replaced_by_kueue(
    lab: Lab,
    stack: Stack,
    racks: dict[str, str],
    topology: str,
    wish: dict[str, str],
    pods: int,
    there: list[str],
) -> None:
    """Kueue replaces a lost machine, and the run goes on without anybody's help and leaves no step
    out.

    With `one-place` the new machine is the third one of the same rack. With `packed` it is one of
    another rack if the rack has none left. The pods are on the machines that Kueue counts. Only
    `mpijob` may need a stop and a resume until all its pods are in one rack again.
    """
    run = f"e2e-lost-rack-{topology}-{pods}"
    stack.set_all(wish)
    start(lab, stack, run, topology, pods)
    assert {racks[node] for node in places(lab).values()} == {"three"}
    try:
        pod, node = lose_a_node(lab)
        # Until then, the step that was under way when the node was lost may still be written.
        wait_for("the end of the lost pod", lambda: places(lab).get(pod) != node, 300)
        made = max(lab.losses(run))
        wait_for("steps after the last one", lambda: max(lab.losses(run)) > made, 300)
        assert node not in places(lab).values()
        assert counted(lab, topology) == Counter(places(lab).values())
        if topology in GROUPS:
            people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
            made = max(lab.losses(run))
            people_run(lab, stack, f"./disttrain resume --stack {stack.name}")
            wait_for("steps after the stop", lambda: max(lab.losses(run)) > made, 300)
        assert sorted(racks[name] for name in places(lab).values()) == there
        losses = lab.losses(run)
        assert sorted(losses) == list(range(1, max(losses) + 1))
        assert set(changes(stack.up())) == {"unchanged"}
    finally:
        lab.cluster.up(NODES)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("topology", ["indexed-job", "jobset"])
def test_run_waits_for_its_whole_rack(
    lab: Lab, stack: Stack, racks: dict[str, str], topology: str
) -> None:
    """A run that needs each node of its rack waits in the queue while one of them is lost.

    `status` says so, the other pods end, and the run goes on when the node is back.
    """
    run = f"e2e-whole-rack-{topology}"
    stack.set_all(ONE_RACK)
    start(lab, stack, run, topology, pods=3)
    assert {racks[node] for node in places(lab).values()} == {"three"}
    try:
        _, node = lose_a_node(lab)

        def told() -> str:
            now = seen(lab)
            waits = now.state == "queued" and ROOM_FOR_TWO in now.detail
            return now.detail if waits else ""

        detail = wait_for("status to say what the run waits for", told, 300)
        assert f"no replacement for unhealthy node(s): {node}" in detail
        wait_for("the end of its pods", lambda: not training_pods(lab, stack), 300)
        assert set(changes(stack.up())) == {"unchanged"}
        made = max(lab.losses(run))
    finally:
        lab.cluster.up(NODES)
    wait_for("steps after the last one", lambda: max(lab.losses(run)) > made, 300)
    losses = lab.losses(run)
    assert sorted(losses) == list(range(1, max(losses) + 1))
    assert counted(lab, topology) == Counter(places(lab).values())
