"""Two people have stacks of the same name on one cluster, and two runs begin at the same time.

Each person has a backend of their own. The tests build on each other in file order.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, everything, states, training_pods
from tests.e2e.lab import ENDLESS, Lab, run_settings, wait_for
from tests.node.lab import background_up, output_file

pytestmark = pytest.mark.in_order

SAME = "e2e-same"
SHORT = 10


@pytest.fixture(scope="module")
def ann(lab: Lab) -> Stack:
    stack = lab.stack(SAME, "sandbox", run_settings("e2e-ann", SHORT), person="ann")
    stack.up()
    lab.wait_done("e2e-ann")
    return stack


@pytest.fixture(scope="module")
def bob(lab: Lab, ann: Stack, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    assert ann
    data = {"dataRoot": str(tmp_path_factory.mktemp("bob") / "data")}  # not Ann's
    return lab.stack(SAME, "sandbox", {**run_settings("e2e-bob", SHORT), **data}, person="bob")


def rider(lab: Lab, name: str) -> Stack:
    """Return a stack with a run on Ann's platform, of one process, which does not end by itself."""
    settings = {
        **run_settings(f"e2e-{name}", ENDLESS),
        "platform": SAME,
        "topology": "single-pod",
        "processesPerPod": "1",
        "instance": name,
    }
    return lab.stack(f"e2e-{name}", "sandbox-multipod", settings, person="ann")


@pytest.fixture(scope="module")
def riders(lab: Lab, ann: Stack) -> list[Stack]:
    assert ann
    return [rider(lab, "one"), rider(lab, "two")]


def test_stack_of_the_same_name_takes_over_and_deletes_nothing(
    lab: Lab, ann: Stack, bob: Stack
) -> None:
    """`up` refuses to take over the platform of a stack of the same name in another backend.

    The message names the owner and the setting that helps. `destroy` of the refused stack deletes
    nothing.
    """
    before = everything(lab)
    with pytest.raises(PulumiFailedError) as refusal:
        bob.up()
    said = str(refusal.value)
    assert f"belongs to another stack named {SAME}" in said
    assert "pulumi config set namespace NAME" in said
    assert ann.output("owner") in said
    bob.destroy()
    assert everything(lab) == before


def test_both_stand_beside_each_other_in_namespaces_of_their_own(
    lab: Lab, ann: Stack, bob: Stack
) -> None:
    """Two stacks of the same name can be in two namespaces, and `destroy` of one leaves the other
    as it is.
    """
    before = everything(lab)
    bob.set("namespace", "disttrain-bob")
    bob.set("topology", "none")
    bob.up()
    assert "disttrain-bob" in lab.kubectl("get", "namespace", "-o", "name")
    bob.destroy()
    assert everything(lab) == before
    assert json.loads(bob.export())["deployment"].get("resources", []) == []
    assert set(changes(ann.up("--expect-no-changes"))) == {"unchanged"}  # the image is still there


def up(stack: Stack) -> str:
    """Return the output of an `up` that may fail."""
    try:
        return stack.up()
    except PulumiFailedError as failure:
        return str(failure)


def training(lab: Lab, stack: Stack) -> bool:
    """Return whether the stack has a training pod.

    A stack whose first `up` was refused early has no outputs yet, and no pod.
    """
    try:
        return bool(training_pods(lab, stack))
    except PulumiFailedError as failure:
        if "current stack does not have output property 'owner'" not in str(failure):
            raise
        return False


def test_of_two_runs_that_come_at_one_time_one_trains(lab: Lab, riders: list[Stack]) -> None:
    """If two runs begin at the same time on one platform, exactly one of them trains."""
    with ThreadPoolExecutor() as both:
        outputs = list(both.map(up, riders))
    trains = [training(lab, stack) for stack in riders]
    assert trains.count(True) == 1, "\n".join(outputs)
    (winner,) = (stack for stack in riders if training(lab, stack))
    assert set(changes(winner.up("--expect-no-changes"))) == {"unchanged"}


def test_run_that_waits_comes_up_when_the_other_one_ends(lab: Lab, riders: list[Stack]) -> None:
    """With `whenBusy: wait`, `up` waits until the other run has ended, and then starts its own.

    Meanwhile the other run trains on, and status can be asked although no `up` of the waiting stack
    has ended.
    """
    riders.sort(key=lambda stack: training(lab, stack))
    waiting, holder = riders
    waiting.set("whenBusy", "wait")
    with background_up(waiting) as process:
        wait_for(
            "the second run to wait",
            lambda: f"waiting for the end of Job train-singlepod-{holder.name[4:]}"
            in output_file(waiting).read_text(),
            120,
        )
        assert training(lab, holder)
        assert process.poll() is None
        # The waiting stack has no outputs yet, because no `up` of it has ended.
        # It is called saving while it waits for a save, and quiet if no step came for some seconds.
        wait_for("the other", lambda: states(lab, waiting)[holder.name] == "training", 120)
        holder.destroy()
        process.wait(300)
    assert process.returncode == 0, output_file(waiting).read_text()
    assert training(lab, waiting)


def test_namespace_that_somebody_has_deleted_is_made_again(
    lab: Lab, ann: Stack, riders: list[Stack]
) -> None:
    """After somebody has deleted the namespace, `up` of the run names the command that makes it
    again.

    That command is `pulumi up --refresh` of the platform's stack.
    """
    run = riders[0]
    lab.kubectl("delete", "namespace", "disttrain")
    with pytest.raises(PulumiFailedError, match=rf"pulumi up --refresh --stack \S*{SAME}"):
        run.up()
    ann.up("--refresh")
    lab.wait_claim_bound()
    run.up("--refresh")
    assert training(lab, run)
    assert set(changes(run.up("--expect-no-changes"))) == {"unchanged"}


def test_purge_takes_the_data_after_the_last_run_has_gone(
    lab: Lab, ann: Stack, riders: list[Stack]
) -> None:
    """With `dataOnDestroy: purge`, `destroy` of the platform deletes the data when no run is left.

    While a run of another stack is left, `destroy` is refused and the data stay.
    """
    root = lab.cluster.data_root
    ann.set("dataOnDestroy", "purge")
    ann.set("purgeConfirmed", str(root))
    ann.up()
    with pytest.raises(PulumiFailedError, match=rf"pulumi destroy --stack \S*{riders[0].name}"):
        ann.destroy()
    assert lab.run_dir("e2e-ann").is_dir()
    riders[0].destroy()
    ann.destroy()
    assert not Path(root, "runs").exists()
    assert not Path(root, "datasets").exists()
