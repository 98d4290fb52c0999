"""The workload of a run is removed after the run's end by `ttlSecondsAfterFinished`.

The tests go from `up` to `destroy`. `make test-engines` runs this file.
"""

import json
from collections.abc import Iterator

import pytest

from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, people_run, states, training_pods
from tests.e2e.engines import JOBSET, PYTORCHJOB, VOLCANO, Engine
from tests.e2e.lab import ENDLESS, Lab, run_settings, wait_for
from trainer.events.event import Name, event_file

pytestmark = pytest.mark.in_order

NAME = "e2e-goes"
FAILS = f"{NAME}-failed"
OTHER = f"{NAME}-other"
WORKLOAD = "train-indexed"
TTL = 60
STEPS = 20
MORE = 40
LIMIT_SECONDS = TTL + 120
FATAL = {"run.train.initial_weights": "/data/no-such-weights"}
REMOVED_BY = ((JOBSET, "jobset"), (PYTORCHJOB, "training-operator"), (VOLCANO, "volcano"))


@pytest.fixture(scope="module")
def stack(lab: Lab) -> Iterator[Stack]:
    pods = {"topology": "indexed-job", "pods": "2", "processesPerPod": "1"}
    settings = {**pods, "ttlSecondsAfterFinished": str(TTL), **run_settings(NAME, STEPS)}
    made = lab.stack(NAME, "sandbox", settings)
    yield made
    made.destroy()


def wait_until_gone(lab: Lab) -> None:
    name = f"Job/{WORKLOAD}"
    wait_for(f"{name} to go", lambda: name not in lab.uids("job"), LIMIT_SECONDS)


def rounds(lab: Lab, run_name: str) -> int:
    """Return how often node 0 has started ranks."""
    path = event_file(lab.run_dir(run_name), 0)
    return path.read_text().count(f'"{Name.RANKS_STARTED.value}"')


def detail(lab: Lab, stack: Stack) -> str:
    """Return what `./disttrain status` says of the only run."""
    (run,) = json.loads(people_run(lab, stack, f"./disttrain status --stack {stack.name} --json"))[
        "runs"
    ]
    return run["detail"]


def test_finished_run_goes_and_is_called_finished(lab: Lab, stack: Stack) -> None:
    """After a finished run's workload is removed, status still says that the run has finished.

    Its pods are gone, so status reads this from the volume, and it leaves no pod there.
    """
    stack.up()
    lab.wait_done(NAME)
    wait_until_gone(lab)
    wait_for("its pods to go", lambda: not training_pods(lab, stack), 60)
    assert states(lab, stack) == {NAME: "finished"}
    said = detail(lab, stack)
    assert f"Job {WORKLOAD} was removed {TTL} s after that" in said, said
    assert lab.get("pod", "--selector=disttrain.dev/task")["items"] == []


def test_second_up_of_a_run_that_has_gone_changes_nothing(lab: Lab, stack: Stack) -> None:
    stack.up()
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
    assert f"Job/{WORKLOAD}" not in lab.uids("job")


def test_refreshed_run_ends_at_once_and_trains_nothing(lab: Lab, stack: Stack) -> None:
    """After a `refresh`, `up` makes the workload again, which ends at once and makes no step."""
    before = rounds(lab, NAME)
    stack.refresh()
    stack.up()
    finished = "--for=condition=Complete"
    lab.kubectl("wait", finished, f"job/{WORKLOAD}", "--timeout=120s")
    assert rounds(lab, NAME) == before
    assert sorted(lab.losses(NAME)) == list(range(1, STEPS + 1))
    assert states(lab, stack) == {NAME: "finished"}
    wait_until_gone(lab)


def test_longer_run_continues_without_a_refresh(lab: Lab, stack: Stack) -> None:
    """More steps make the run go on without a `refresh`, as with `./disttrain extend`.

    A change of `ttlSecondsAfterFinished` alone fails, because the workload is gone, and needs a
    `refresh`.
    """
    stack.set("ttlSecondsAfterFinished", str(TTL + 1))
    with pytest.raises(PulumiFailedError, match="not found"):
        stack.up()
    stack.set_all({"ttlSecondsAfterFinished": str(TTL), "run.train.max_steps": str(MORE)})
    stack.up()
    wait_for("the longer run", lambda: MORE in lab.losses(NAME), 120)
    wait_until_gone(lab)
    assert states(lab, stack) == {NAME: "finished"}


def test_failed_run_that_has_gone_is_called_failed_and_starts_again(lab: Lab, stack: Stack) -> None:
    """After a failed run's workload is removed, status still calls it failed, and `up` fails and
    says why.

    After a `refresh`, `up` starts the run again.
    """
    stack.set_all({"runName": FAILS, **FATAL})
    with pytest.raises(PulumiFailedError):
        stack.up()
    wait_until_gone(lab)
    assert state_of_failed(lab, stack) == "failed"
    with pytest.raises(PulumiFailedError) as again:
        stack.up()
    said = " ".join(str(again.value).split())
    assert "/data/no-such-weights" in said, said
    assert f"Job {WORKLOAD} was removed {TTL} s after that" in said, said
    before = rounds(lab, FAILS)
    stack.refresh()
    with pytest.raises(PulumiFailedError):
        stack.up()
    assert rounds(lab, FAILS) > before


def test_other_runs_make_place_only_when_it_is_made_again(lab: Lab, stack: Stack) -> None:
    """While the workload of a failed run is gone, `up` of this run changes nothing of other runs.

    After a `refresh` the run is made again. Then `whenBusy` decides whether another run is
    suspended for it.
    """
    wait_until_gone(lab)
    # Without periodic saves it never waits for one, and so it is `training` whenever it is asked.
    trains = run_settings(OTHER, ENDLESS, **{"run.checkpoint.interval": "0"})
    settings = {**trains, "platform": stack.name, "processesPerPod": "1"}
    other = lab.stack(OTHER, "sandbox-multipod", settings)
    try:
        other.up()
        before = (states_of_all(lab, stack), training_pods(lab, other))
        assert before[0] == {NAME: "failed", OTHER: "training"}
        with pytest.raises(PulumiFailedError, match="no-such-weights"):
            stack.up()
        assert (states_of_all(lab, stack), training_pods(lab, other)) == before
        stack.refresh()
        stack.set("whenBusy", "refuse")
        with pytest.raises(PulumiFailedError, match="whenBusy: refuse, and"):
            stack.up()
        assert f"Job/{WORKLOAD}" not in lab.uids("job")
        assert (states_of_all(lab, stack), training_pods(lab, other)) == before
        stack.set("whenBusy", None)
        rounds_before = rounds(lab, FAILS)
        with pytest.raises(PulumiFailedError, match="is asked to save, and is suspended"):
            stack.up()  # the run fails again
        assert rounds(lab, FAILS) > rounds_before
        assert training_pods(lab, other) == []
        assert states_of_all(lab, stack)[OTHER] == "suspended"
    finally:
        stack.set("whenBusy", None)
        other.destroy()


def state_of_failed(lab: Lab, stack: Stack) -> str:
    """Return the state of the only run, which may need attention."""
    (state,) = states_of_all(lab, stack).values()
    return state


def states_of_all(lab: Lab, stack: Stack) -> dict[str, str]:
    """Return the state of each run, by the name of its stack.

    Status ends with 1 if somebody has to look at a run.
    """
    command = f"./disttrain status --stack {stack.name} --json || test $? = 1"
    runs = json.loads(people_run(lab, stack, command))["runs"]
    return {run["stack"].rpartition("/")[2]: run["state"] for run in runs}


def test_destroy_works_though_the_workload_is_gone(lab: Lab, stack: Stack) -> None:
    wait_until_gone(lab)
    stack.destroy()
    assert lab.left() == []


@pytest.fixture(params=REMOVED_BY, ids=lambda each: each[1])
def served(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Engine]:
    """Yield a kind whose own controller removes the workload, with that controller."""
    engine, name = request.param
    with running(lab.cluster, [CONTROLLERS[name]]):
        yield engine


def test_controller_removes_what_has_finished_and_what_has_failed(lab: Lab, served: Engine) -> None:
    """Controllers with a time to live of their own remove the workload, finished or failed.

    `up` and status still know how the run has ended.
    """
    topology = served.kind.name
    name = f"{NAME}-{topology}"
    pods = {"topology": topology, "pods": "2", "processesPerPod": "1"}
    settings = {**pods, "ttlSecondsAfterFinished": str(TTL), **run_settings(name, STEPS)}
    stack = lab.stack(name, "sandbox", settings)

    def is_gone() -> bool:
        items = lab.get(served.typed)["items"]
        return served.workload not in [item["metadata"]["name"] for item in items]

    try:
        stack.up()
        lab.wait_done(name)
        wait_for(f"{served.workload} to go", is_gone, LIMIT_SECONDS)
        assert "the run has finished" in " ".join(stack.up().split())  # `up` asks the volume
        assert states(lab, stack) == {name: "finished"}
        assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
        if served is VOLCANO:  # the preview of a change asks for the Job, which is gone
            stack.refresh()
        stack.set_all({"runName": f"{name}-failed", **FATAL})
        with pytest.raises(PulumiFailedError):
            stack.up()
        # The operator of PyTorchJob notes no time of a failure, so it does not remove a failed one.
        if served is not PYTORCHJOB:
            wait_for(f"{served.workload} to go", is_gone, LIMIT_SECONDS)
        # `up` may end before the operator has seen the failure: until then the run is failing.
        wait_for("the failed run", lambda: state_of_failed(lab, stack) == "failed", LIMIT_SECONDS)
    finally:
        stack.destroy()
