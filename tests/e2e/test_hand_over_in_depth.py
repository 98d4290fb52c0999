"""Runs want the same GPUs while something goes wrong, or while any of several runs may end first.

What goes wrong: the API server does not answer, or somebody deletes a workload. The GPUs are fake
ones that a device plugin offers. The runs are programs that end by themselves when a file is on the
volume. When they are told to end, they save until another file is there. `make test-engines` runs
this file.
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from sandbox.gpus import offer_gpus
from sandbox.stack import Stack
from tests.e2e.api_outage import frozen_api_server, stopped_api_server
from tests.e2e.asking import people_run, states, training_pods
from tests.e2e.gangs import Gangs
from tests.e2e.lab import Lab, wait_for
from tests.node.lab import background_up, output_file

PLATFORM = "e2e-handed"
NAMES = ("e2e-ann", "e2e-ben", "e2e-cat")
GPUS = 2
OUTAGE_SECONDS = 40  # longer than a hand-over lock lasts if nobody renews it
LIMIT_SECONDS = 300
SAVES_SECONDS = 600  # how long a pod may take to save
AWAY = "the API server does not answer"
PROGRAM = (
    "trap 'until test -e /data/{name}-saved; do sleep 0.1; done; exit 0' TERM; "
    "until test -e /data/{name}-goes; do sleep 0.1; done"
)


@pytest.fixture(scope="module")
def platform(lab: Lab) -> Iterator[Stack]:
    """Yield a platform with two GPUs and without a run."""
    offer_gpus(lab.cluster, GPUS)
    settings = {"topology": "none", "accelerator": "gpu", "gpus": str(GPUS)}
    made = lab.stack(PLATFORM, "sandbox", {**settings, "processesPerPod": "1"})
    try:
        made.up()
        lab.wait_claim_bound()
        yield made
        made.destroy()
    finally:
        offer_gpus(lab.cluster, 0)


@pytest.fixture
def stacks(lab: Lab, platform: Stack) -> Iterator[list[Stack]]:
    """Yield three stacks for runs of programs, none of which is up."""
    made = [new_stack(lab, name) for name in NAMES]
    yield made
    for stack in made:
        allow(lab, stack, "saved")
        stack.destroy()
        for file in lab.cluster.data_root.glob(f"{stack.name}-*"):
            file.unlink()
        shutil.rmtree(lab.run_dir(stack.name), ignore_errors=True)  # the next run begins anew


def new_stack(lab: Lab, name: str) -> Stack:
    """Return a stack with a run of the program on the platform, which is not up."""
    words = ("sh", "-c", PROGRAM.format(name=name))
    stack = lab.stack(
        name,
        "sandbox-multipod",
        {
            "platform": PLATFORM,
            "instance": name,
            "processesPerPod": "1",
            "cpuPerRank": "100m",
            "memoryPerRank": "128Mi",
            "terminationGraceSeconds": str(SAVES_SECONDS),
            **{f"program.command[{place}]": word for place, word in enumerate(words)},
        },
    )
    stack.set_all({"preset": None, "datasetFile": None})  # the template sets these, for our trainer
    return stack


def allow(lab: Lab, stack: Stack, what: str) -> None:
    """Let the run's program end: with `saved` it has saved, with `goes` it ends by itself."""
    (lab.cluster.data_root / f"{stack.name}-{what}").touch()


def in_two_pods(when_busy: str) -> Mapping[str, str]:
    """Return settings of a run in two pods that needs all GPUs."""
    return {"topology": "indexed-job", "pods": "2", "gpusPerPod": "1", "whenBusy": when_busy}


def wait_for_words(stack: Stack, words: str) -> None:
    """Wait until the stack's `up` in the background has said these words."""

    def said() -> bool:
        return words in " ".join(output_file(stack).read_text().split())

    try:
        wait_for(f"{words!r} of {stack.name}", said, LIMIT_SECONDS)
    except AssertionError as reason:
        raise AssertionError(f"{reason}: {output_file(stack).read_text()}") from None


def those_with_pods(lab: Lab, stacks: list[Stack]) -> list[Stack]:
    """Return the stacks that have living pods."""
    return [stack for stack in stacks if pods_of(lab, stack)]


def pods_of(lab: Lab, stack: Stack) -> list[str]:
    """Return the stack's living pods, by the name of its workload.

    A stack whose `up` waits has no outputs by which its pods could be found.
    """
    alive = "--field-selector=status.phase!=Failed,status.phase!=Succeeded"
    listed = lab.kubectl("get", "pod", alive, "-o", "name").split()
    return [name for name in listed if stack.name in name]


def test_one_of_two_that_wait_gets_them(lab: Lab, stacks: list[Stack]) -> None:
    """Of two runs that wait for the GPUs exactly one gets them, even if the API server fails
    meanwhile.

    The API server is frozen while one `up` holds the hand-over lock and the run before saves. It is
    killed while the other `up` waits for the end of the first run. Nobody can renew the lock
    meanwhile, so whoever asks first has it afterwards. The other one is told, or waits on. No two
    runs have pods at the same time.
    """
    before, first, second = stacks
    before.set_all(in_two_pods("replace"))
    before.up()
    with Gangs(lab) as gangs, ExitStack() as processes:
        first.set_all(in_two_pods("replace"))
        second.set_all(in_two_pods("wait"))
        up = {first: processes.enter_context(background_up(first))}
        wait_for_words(first, "to save and end")
        up[second] = processes.enter_context(background_up(second))
        wait_for_words(second, "waiting for the hand-over lock")
        with frozen_api_server(lab.cluster):
            allow(lab, before, "saved")
            wait_out(first, second)
        wait_for("a run to have pods", lambda: those_with_pods(lab, [first, second]), 120)
        (winner,) = those_with_pods(lab, [first, second])
        assert up[winner].wait(LIMIT_SECONDS) == 0, output_file(winner).read_text()
        (other,) = {first, second} - {winner}
        if other is first:
            assert up[first].wait(LIMIT_SECONDS) != 0
            wait_for_words(first, "lost the lock of namespace disttrain to stack e2e-cat")
            first.set("whenBusy", "wait")
            up[first] = processes.enter_context(background_up(first))
        wait_for_words(other, f"waiting for the end of Job train-indexed-{winner.name}")
        assert those_with_pods(lab, stacks) == [winner]
        with stopped_api_server(lab.cluster):
            allow(lab, winner, "goes")
            wait_out(other)
        assert up[other].wait(LIMIT_SECONDS) == 0, output_file(other).read_text()
        found = {before.name: "suspended", winner.name: "finished", other.name: "training"}
        assert states(lab, other) == found
    assert gangs.most_at_once() == 1, gangs.seen


def wait_out(*waiting: Stack) -> None:
    """Wait until these stacks have said that the API server is away, and a lock has run out."""
    end = time.monotonic() + OUTAGE_SECONDS
    for stack in waiting:
        wait_for_words(stack, AWAY)
    time.sleep(max(end - time.monotonic(), 0))


def test_pods_of_a_deleted_job_are_waited_for(lab: Lab, stacks: list[Stack]) -> None:
    """If somebody deletes the Job of a run that still saves, `up` of the next run waits for its
    pods.

    No object names these pods any more. Otherwise two runs would have pods at the same time.
    """
    before, coming, _ = stacks
    before.set_all(in_two_pods("replace"))
    before.up()
    with Gangs(lab) as gangs:
        lab.kubectl("delete", "job", f"train-indexed-{before.name}")
        assert pods_of(lab, before)
        coming.set_all(in_two_pods("replace"))
        with background_up(coming) as process:
            wait_for_words(coming, f"waiting for the pods of Job train-indexed-{before.name}")
            assert pods_of(lab, before)
            assert not pods_of(lab, coming)
            allow(lab, before, "saved")
            assert process.wait(LIMIT_SECONDS) == 0, output_file(coming).read_text()
        assert training_pods(lab, coming)
        assert states_now(lab, coming) == {before.name: "gone", coming.name: "training"}
    assert gangs.most_at_once() == 1, gangs.seen


def states_now(lab: Lab, stack: Stack) -> dict[str, str]:
    """Return what `states` returns, even if a run needs attention; status ends with 1 then."""
    command = f"./disttrain status --stack {stack.name} --json || test $? = 1"
    runs = json.loads(people_run(lab, stack, command))["runs"]
    return {run["stack"].rpartition("/")[2]: run["state"] for run in runs}


def test_room_of_whichever_run_ends_is_taken(lab: Lab, stacks: list[Stack]) -> None:
    """A run that waits for one GPU starts when any of the two runs that hold one has ended.

    One of them ends by itself. Later another one is stopped and saves.
    """
    one, two, third = stacks
    for stack in stacks:
        stack.set_all({"topology": "single-pod", "gpusPerPod": "1", "whenBusy": "wait"})
    one.up()
    two.up()
    with Gangs(lab) as gangs:
        with background_up(third) as process:
            wait_for_words(third, "waiting for room beside")
            assert not pods_of(lab, third)
            allow(lab, two, "goes")
            assert process.wait(LIMIT_SECONDS) == 0, output_file(third).read_text()
        found = states(lab, third)
        assert found == dict(zip(NAMES, ("training", "finished", "training"), strict=True))
        (lab.cluster.data_root / f"{two.name}-goes").unlink()
        two.set("runName", "e2e-again")
        with background_up(two) as process:
            wait_for_words(two, "waiting for room beside")
            assert not pods_of(lab, two)
            allow(lab, one, "saved")
            people_run(lab, one, f"./disttrain stop --stack {one.name}")
            assert process.wait(LIMIT_SECONDS) == 0, output_file(two).read_text()
        found = states(lab, two)
        assert found == dict(zip(NAMES, ("stopped", "training", "training"), strict=True))
    assert gangs.most_at_once() == GPUS, gangs.seen
