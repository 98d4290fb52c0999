"""Of two runs in a queue with room for one, the second gets pods after the first one's have ended.

All pods are watched all the time, so that no moment is left out. The runs are two stacks on one
platform, of each kind that can be in a queue of Kueue. `bench.gangs` measures queues of Volcano,
and controllers that are killed meanwhile. `make test-engines` runs this file.
"""

from collections.abc import Iterator
from functools import partial

import pytest

from bench.gangs_rows import overlaps
from bench.kinds_watch import Watch
from infra.labels import WORKLOAD_LABEL
from infra.workloads import WORKLOADS
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.controllers.kueue import KUEUE
from sandbox.stack import Stack
from tests.e2e.asking import states, training_pods
from tests.e2e.lab import Lab, wait_for
from tests.e2e.queue_guest import CPU, QUEUE
from tests.e2e.queued_runs import RANKS, shape_of

KINDS = ("single-pod", "indexed-job", "jobset", "trainjob", "pytorchjob", "mpijob")
NEEDED = ("jobset", "trainer", "training-operator", "mpi-operator")
PLATFORM = "e2e-one-at-a-time"
FIRST, NEXT = "e2e-one", "e2e-two"
LIMIT_SECONDS = 300


@pytest.fixture(scope="module")
def platform(lab: Lab) -> Iterator[Stack]:
    """Yield a platform whose queue has room for one run."""
    with running(lab.cluster, [*(CONTROLLERS[name] for name in NEEDED), KUEUE]):
        settings = {"topology": "none", "queues.name": QUEUE, "queues.quota.cpu": CPU}
        made = lab.stack(PLATFORM, "sandbox", settings)
        made.up()
        yield made
        made.destroy()


@pytest.fixture(scope="module")
def stacks(lab: Lab, platform: Stack) -> Iterator[list[Stack]]:
    """Yield two stacks on the platform, for runs whose programs wait for a file on the volume and
    end.
    """
    assert platform
    made = list[Stack]()
    for name in (FIRST, NEXT):
        stack = lab.stack(name, "sandbox-multipod", {"platform": PLATFORM, "instance": name})
        # The template sets these for our own trainer.
        stack.set_all({"preset": None, "datasetFile": None})
        made.append(stack)
    lab.wait_claim_bound()
    yield made
    for stack in made:
        stack.destroy()


def settings_of(kind: str, go: str) -> dict[str, str | None]:
    """Return settings of a run of three ranks that ends when the file `go` is on the volume."""
    waits = f"until test -e /data/{go}; do sleep 0.1; done"
    words = {f"program.command[{i}]": word for i, word in enumerate(("sh", "-c", waits))}
    return {**words, "topology": kind, **shape_of(kind), "queue": QUEUE, "runName": go}


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_runs_hold_pods_at_once(lab: Lab, stacks: list[Stack], kind: str) -> None:
    """The second run stays queued until the first one has ended, and gets its pods only then."""
    runs = [f"{stack.name}-{kind}" for stack in stacks]
    with Watch(lab, WORKLOAD_LABEL) as pods:
        for stack, run in zip(stacks, runs, strict=True):
            stack.set_all(settings_of(kind, run))
            stack.up()
        for stack, run in zip(stacks, runs, strict=True):
            wait_for(f"{run} to train", partial(is_training, lab, stack), LIMIT_SECONDS)
            if stack is stacks[0]:
                assert states(lab, stack)[NEXT] == "queued"
                assert not training_pods(lab, stacks[1])
            (lab.cluster.data_root / run).touch()
            lab.wait_done(run)
    seen = pods.seen()
    names = {WORKLOADS[kind].object_name + f"-{stack.name}" for stack in stacks}
    made = {mark: {each.uid for each in seen if each.mark == mark} for mark in names}
    count = RANKS if WORKLOADS[kind].several_pods else 1
    assert {mark: len(uids) for mark, uids in made.items()} == dict.fromkeys(names, count)
    assert overlaps([each for each in seen if each.mark in names]) == []


def is_training(lab: Lab, stack: Stack) -> bool:
    return states(lab, stack)[stack.name] == "training"
