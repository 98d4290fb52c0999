"""The workload of a run that trains changes: in place if possible, else anew after the old one.

This tests together what the API server, the controllers' webhooks and the provider's previews
allow.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.kube.workload import Workload
from infra.workloads import WORKLOADS
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.controllers.kueue import KUEUE
from sandbox.follow import train_points
from sandbox.stack import Stack
from tests.e2e.asking import changes, people_run, training_pods, wait_for_first_checkpoint
from tests.e2e.engines import ENGINES
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for
from tests.e2e.queue_guest import QUEUE
from tests.e2e.queued_runs import RANKS, shape_of

NEEDED = ("jobset", "trainer", "training-operator", "mpi-operator", "volcano", "lws")
MADE = {"queues.name": QUEUE, "queues.quota.cpu": "2"}
FIRST = "e2e-changed-first"
OTHER_NAMESPACE = "e2e-moved"
OF_CONTROLLERS = [engine.kind.name for engine in ENGINES]
PARTS = ("job", "statefulset", "controllerrevision", "service", "pod", "trainingruntime")
SPOT = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}

pytestmark = pytest.mark.in_depth


@pytest.fixture(scope="module")
def served(lab: Lab) -> Iterator[Lab]:
    with running(lab.cluster, [*(CONTROLLERS[name] for name in NEEDED), KUEUE]):
        yield lab


@pytest.fixture(scope="module")
def stack(served: Lab) -> Iterator[Stack]:
    """Yield a stack that makes a queue, and whose first run is in no queue and finished."""
    made = served.stack("e2e-changed", "sandbox", {**run_settings(FIRST, 10), **MADE})
    made.set_all({"topology": "single-pod", **shape_of("single-pod")})
    made.up()
    served.wait_done(FIRST)
    yield made
    made.destroy()


def start(lab: Lab, stack: Stack, topology: str, run_name: str, **settings: str) -> None:
    """Start a run with these settings, and wait until it has saved a checkpoint."""
    plain = dict.fromkeys(("queue", "instance", "ttlSecondsAfterFinished", "cpuPerRank"))
    shape = {"topology": topology, **shape_of(topology)}
    stack.set_all({**plain, **run_settings(run_name, ENDLESS), **shape, **settings})
    stack.up()
    wait_for_first_checkpoint(lab, run_name)


def typed(topology: str) -> str:
    """Return the kind of the workload in the form that kubectl takes."""
    kind = WORKLOADS[topology]
    return Workload(kind.api_version, kind.kind, kind.object_name).typed


def workload(lab: Lab, topology: str, instance: str = "", namespace: str = NAMESPACE) -> Any:
    """Return the workload object, as the API server has it."""
    name = f"{WORKLOADS[topology].object_name}{instance}"
    return lab.get(typed(topology), name, namespace=namespace)


def uid(lab: Lab, topology: str, instance: str = "", namespace: str = NAMESPACE) -> str:
    return workload(lab, topology, instance, namespace)["metadata"]["uid"]


def parts_of_runs(lab: Lab) -> set[str]:
    """Return the names of all workloads, and of what the program and controllers make for them."""
    found = lab.uids(*PARTS, *{typed(topology) for topology in WORKLOADS})
    return {name for name in found if "/train-" in name}


def goes_on(lab: Lab, run_name: str) -> None:
    """Check that the run makes further steps, and has left out no step and made none twice."""
    made = max(lab.losses(run_name))
    wait_for("steps after the last one", lambda: max(lab.losses(run_name)) > made, 300)
    steps = [point["step"] for point in train_points(lab.run_dir(run_name))]
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.parametrize("topology", ["single-pod", "jobset", "multi-pod", "lws"])
def test_stopped_run_is_resumed_after_refresh(served: Lab, stack: Stack, topology: str) -> None:
    """After `stop` and `refresh`, `up` resumes the run with the same workload object.

    The `refresh` notes in the state that nothing of the run is running, and `up` undoes that.
    """
    run_name = f"e2e-refreshed-{topology}"
    start(served, stack, topology, run_name)
    before = uid(served, topology)
    people_run(served, stack, f"./disttrain stop --stack {stack.name}")
    stack.refresh()
    stack.preview()
    stack.up()
    assert uid(served, topology) == before
    goes_on(served, run_name)


@pytest.mark.parametrize("topology", OF_CONTROLLERS)
def test_run_gets_another_instance(served: Lab, stack: Stack, topology: str) -> None:
    """If `instance` changes, `up` makes the run's objects under the new name, and none of the
    former stays.

    Trainer's webhook refuses each change of a TrainJob whose runtime is gone, also its end.
    """
    run_name = f"e2e-instance-{topology}"
    start(served, stack, topology, run_name)
    before = parts_of_runs(served)
    stack.set("instance", "b")
    stack.preview()
    stack.up()
    assert uid(served, topology, "-b")
    nothing_is_left(served, before)
    goes_on(served, run_name)
    stack.preview("--expect-no-changes")


def nothing_is_left(lab: Lab, before: set[str]) -> None:
    """Wait until these former parts are gone, which garbage collection may delay."""
    assert before
    wait_for("the former parts to go", lambda: not before & parts_of_runs(lab), 60)


@pytest.mark.timeout(1800)  # three times `up`, two of them with all of the platform
@pytest.mark.parametrize("topology", ["jobset", "trainjob"])
def test_run_moves_to_another_namespace(served: Lab, stack: Stack, topology: str) -> None:
    """A run goes on after its namespace has changed, and after it has changed back.

    The former namespace is deleted each time.
    """
    run_name = f"e2e-moved-{topology}"
    start(served, stack, topology, run_name)
    for former, namespace in ((NAMESPACE, OTHER_NAMESPACE), (OTHER_NAMESPACE, NAMESPACE)):
        stack.set("namespace", namespace)
        stack.preview()
        stack.up()
        assert uid(served, topology, namespace=namespace)
        assert f"Namespace/{former}" not in served.uids("namespace")
        goes_on(served, run_name)
        stack.preview("--expect-no-changes")


@pytest.mark.timeout(3600)  # ten times `up`, and a preview before and after each
def test_living_run_takes_each_topology(served: Lab, stack: Stack) -> None:
    """A run goes on under each topology, one after the other, and nothing of the former one is
    left.
    """
    ring = [*reversed(OF_CONTROLLERS), "indexed-job", "multi-pod", "single-pod"]
    run_name = "e2e-ring"
    start(served, stack, ring[0], run_name)
    for topology in [*ring[1:], ring[0]]:
        before = parts_of_runs(served)
        stack.set_all({"topology": topology, **shape_of(topology)})
        stack.preview()
        stack.up()
        assert uid(served, topology)
        nothing_is_left(served, before)
        goes_on(served, run_name)
        stack.preview("--expect-no-changes")


def test_preview_has_room_for_the_longest_instance(served: Lab, stack: Stack) -> None:
    """The preview works with the longest `instance` that the settings allow.

    The preview tries a new JobSet under a longer name, which must not be too long.
    """
    start(
        served, stack, "jobset", "e2e-longest", instance="s" * WORKLOADS["jobset"].longest_instance
    )
    stack.set("pods", str(RANKS + 1))
    stack.preview()
    stack.up()
    assert len(training_pods(served, stack)) == RANKS + 1
    goes_on(served, "e2e-longest")


@pytest.mark.parametrize("topology", ["single-pod", "multi-pod", *OF_CONTROLLERS])
def test_engine_replaces_it_when_it_is_gone(served: Lab, stack: Stack, topology: str) -> None:
    """`pulumi up --replace` of the workload makes another one, with which the run goes on.

    The provider does not wait for the end of what it deletes, so the new object could meet the old
    one.
    """
    run_name = f"e2e-replace-{topology}"
    start(served, stack, topology, run_name)
    before = uid(served, topology)
    resources = json.loads(stack.export())["deployment"]["resources"]
    kind = WORKLOADS[topology].kind
    (urn,) = (each["urn"] for each in resources if f"{kind}::training-" in each["urn"])
    stack.up("--replace", urn)
    assert uid(served, topology) != before
    goes_on(served, run_name)
    stack.preview("--expect-no-changes")


@pytest.mark.parametrize("topology", ["single-pod", "indexed-job", "jobset", "pytorchjob"])
def test_time_to_live_changes_in_a_queue(served: Lab, stack: Stack, topology: str) -> None:
    """In a queue, `ttlSecondsAfterFinished` changes in place, and a change of CPU replaces the run.

    Kueue has written the tolerations of its flavor into the pods' template, and `up` leaves them
    there.
    """
    run_name = f"e2e-queued-{topology}"
    (flavor,) = served.get("resourceflavor")["items"]
    tolerated = json.dumps({"spec": {"tolerations": [SPOT]}})
    name = flavor["metadata"]["name"]
    served.kubectl("patch", "resourceflavor", name, "--type=merge", f"-p={tolerated}")
    start(served, stack, topology, run_name, queue=QUEUE)
    before = workload(served, topology)
    assert SPOT["key"] in json.dumps(before["spec"])
    stack.set("ttlSecondsAfterFinished", "86400")
    stack.preview()
    assert "updated" in changes(stack.up())
    after = workload(served, topology)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert "86400" in json.dumps(after["spec"])
    goes_on(served, run_name)
    stack.set("cpuPerRank", "60m")
    stack.preview()
    stack.up()
    assert uid(served, topology) != before["metadata"]["uid"]
    each_pod = 60 if WORKLOADS[topology].several_pods else 60 * RANKS
    assert f'"cpu": "{each_pod}m"' in json.dumps(workload(served, topology)["spec"])
    goes_on(served, run_name)
