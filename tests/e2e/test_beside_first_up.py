"""What people type beside a first `pulumi up` that still waits for the training: logs and stop.

Each run is a stack of its own on a platform without a run; no `up` of it has ended yet, so it has
no outputs. The tests build on each other in file order. `make test-engines` runs this file.
"""

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pytest

from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, people_run
from tests.e2e.lab import ENDLESS, Lab, run_settings, wait_for
from tests.node.lab import background_up, output_file

pytestmark = pytest.mark.in_order

PLATFORM, FAILS, SLOW, WAITS = "e2e-beside", "e2e-beside-fails", "e2e-beside-slow", "e2e-beside-w"
MISSING = "No module named 'psutil'"
STEPS = 20
LIMIT_SECONDS = 300
TOO_LARGE = "1000"  # processors: no node has so many, and the cluster is said to make such nodes


@pytest.fixture(scope="module")
def platform(lab: Lab) -> Iterator[Stack]:
    made = lab.stack(PLATFORM, "sandbox", {"topology": "none", "clusterGrows": "true"})
    made.up()
    yield made
    made.destroy()


@contextmanager
def run_of(lab: Lab, name: str, settings: Mapping[str, str | None]) -> Iterator[Stack]:
    """A stack with a run on the platform."""
    made = lab.stack(name, "sandbox-multipod", {"platform": PLATFORM, **settings})
    try:
        yield made
    finally:
        with suppress(PulumiFailedError):  # what is left then is a failure of its own
            made.destroy()


@pytest.fixture(scope="module")
def failing(lab: Lab, platform: Stack) -> Iterator[Stack]:
    """A program that fails at each start until a file is on the volume, and then makes a step."""
    assert platform
    lab.wait_claim_bound()
    waits = f'test -e /data/{FAILS} || {{ echo "{MISSING}"; exit 3; }}; echo step 1/1'
    words = {f"program.command[{i}]": word for i, word in enumerate(("sh", "-c", waits))}
    settings = {
        "pods": "2",
        "processesPerPod": "1",
        "runName": FAILS,
        "program.progress": r"step (?P<step>\d+)",
    }
    ours = {"preset": None, "datasetFile": None}  # of the template, for our own trainer
    with run_of(lab, FAILS, {**ours, **settings, **words}) as made:
        yield made
    (lab.cluster.data_root / FAILS).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def slow(lab: Lab, platform: Stack) -> Iterator[Stack]:
    """A run whose pod has to wait for a node."""
    assert platform
    pod = {"topology": "single-pod", "processesPerPod": "1", "cpuPerRank": TOO_LARGE}
    with run_of(lab, SLOW, {**run_settings(SLOW, STEPS), **pod, "verify": "after"}) as made:
        yield made


def typed(stack: Stack, words: str) -> tuple[int, str]:
    """Exit status and what is shown of a command of ./disttrain about this stack's run."""
    done = subprocess.run(
        ["sh", "-c", f"./disttrain {words} --stack {stack.name} 2>&1"],
        cwd=stack.project,
        env=stack.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    return done.returncode, " ".join(done.stdout.split())


def said_by_up(stack: Stack) -> str:
    """What the `up` of `background_up` has written so far, without its line breaks."""
    return " ".join(output_file(stack).read_text().split())


def follow_logs(stack: Stack) -> subprocess.Popen[str]:
    """`./disttrain logs`, which follows; all that it shows comes by its standard output."""
    return subprocess.Popen(
        ["./disttrain", "logs", "--stack", stack.name],
        cwd=stack.project,
        env=stack.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def state(lab: Lab, stack: Stack) -> str:
    """By `./disttrain status`, which ends with 1 where somebody has to look at a run."""
    command = f"./disttrain status --stack {stack.name} --json || test $? = 1"
    runs = json.loads(people_run(lab, stack, command))["runs"]
    return next(run["state"] for run in runs if run["stack"].rpartition("/")[2] == stack.name)


def training_pods(lab: Lab) -> list[str]:
    """Of all stacks: one whose first `up` goes on has no outputs to ask for."""
    selector = "--selector=app.kubernetes.io/component=training"
    return lab.kubectl("get", "pod", selector, "-o", "name").split()


def test_stop_ends_up_that_waits_for_ranks_that_fail(lab: Lab, failing: Stack) -> None:
    """`up` was said to have failed, with a setting to change and a workload to delete."""
    with background_up(failing) as up:
        wait_for("a failed start", lambda: MISSING in said_by_up(failing), LIMIT_SECONDS)
        status, shown = typed(failing, "logs --no-follow")
        assert (status, MISSING in shown) == (0, True), shown
        with follow_logs(failing) as logs:
            assert logs.stdout
            assert any(MISSING in line for line in logs.stdout)  # reads no further
            status, stopped = typed(failing, "stop")
            assert status == 0, stopped
            logs.communicate(timeout=LIMIT_SECONDS)
        assert logs.returncode == 0  # it ends with the pods
        up.wait(LIMIT_SECONDS)
    said, goes_on = said_by_up(failing), f"./disttrain resume --stack {FAILS}"
    assert up.returncode == 0, said
    assert "StatefulSet train-multipod is stopped; " in stopped, stopped
    assert stopped.endswith(goes_on), stopped
    assert "was stopped by ./disttrain stop, so `pulumi up` does not wait for its first" in said
    assert goes_on in said
    assert "training failed" not in said
    assert "To fix it" not in said
    assert training_pods(lab) == []
    assert state(lab, failing) == "stopped"


def test_stopped_run_goes_on_by_the_command_that_up_names(lab: Lab, failing: Stack) -> None:
    """And the next `up` has nothing to do."""
    (lab.cluster.data_root / FAILS).touch()
    status, shown = typed(failing, "resume")
    assert status == 0, shown
    wait_for("its end", lambda: state(lab, failing) == "finished", LIMIT_SECONDS)
    assert set(changes(failing.up("--expect-no-changes"))) == {"unchanged"}


def test_stop_ends_up_that_waits_for_a_node(lab: Lab, slow: Stack) -> None:
    """With `verify: after` it has no point to look at yet."""
    with background_up(slow) as up:
        wait_for("a pod without a node", lambda: "Unschedulable" in said_by_up(slow), LIMIT_SECONDS)
        status, shown = typed(slow, "logs --no-follow")
        assert status == 0, shown
        assert "has written nothing yet; ./disttrain status says what the run waits for" in shown
        pod = {"topology": "single-pod", "processesPerPod": "1", "instance": "w"}
        settings = {**run_settings(WAITS, STEPS), **pod, "whenBusy": "wait"}
        with run_of(lab, WAITS, settings) as waiting:
            type_beside_up_that_waits_for_another_run(waiting)
        assert up.poll() is None, said_by_up(slow)
        status, stopped = typed(slow, "stop")
        assert status == 0, stopped
        up.wait(LIMIT_SECONDS)
    said = said_by_up(slow)
    assert up.returncode == 0, said
    assert "verify: after, and the run is stopped. Once it trains: ./disttrain verify" in said
    assert state(lab, slow) == "stopped"


def type_beside_up_that_waits_for_another_run(stack: Stack) -> None:
    """It has no run yet to be stopped, nor a pod."""
    with background_up(stack) as up:
        wait_for("it to wait", lambda: "waiting for the end of" in said_by_up(stack), LIMIT_SECONDS)
        status, shown = typed(stack, "stop")
        assert status != 0
        assert "If one is under way, Ctrl-C there ends it" in shown, shown
        status, shown = typed(stack, "logs")
        assert (status, "has no pods, and no logs are on the volume; " in shown) == (1, True), shown
        up.send_signal(signal.SIGINT)  # as a terminal does it at Ctrl-C
        up.wait(LIMIT_SECONDS / 2)
        assert up.returncode != 0


def test_next_up_of_a_stopped_run_trains(lab: Lab, slow: Stack) -> None:
    """It is the other way that the words at the end of `up` name."""
    slow.set_all({"cpuPerRank": None, "verify": None})
    slow.up()
    assert lab.wait_done(SLOW)["step"] == STEPS


def test_workload_that_is_made_again_is_refused_its_place(
    lab: Lab, slow: Stack, failing: Stack
) -> None:
    """Somebody has deleted it with its Service, and another run trains now: `up` names that one and
    makes nothing. Without `whenBusy: refuse` it takes its turn."""
    (lab.cluster.data_root / FAILS).touch()
    failing.set("whenBusy", "refuse")
    failing.up()
    slow.set("run.train.max_steps", str(ENDLESS))
    slow.up()
    pods = training_pods(lab)
    lab.kubectl("delete", "statefulset/train-multipod", "service/train-mp-headless")
    failing.refresh()
    with pytest.raises(PulumiFailedError) as refused:
        failing.up()
    said = " ".join(str(refused.value).split())
    assert (
        "whenBusy: refuse, and the CPUs that this run needs are taken by Job train-single" in said
    )
    assert f"/{SLOW}, which trains" in said
    assert "pulumi config set whenBusy wait (or replace)" in said
    assert lab.uids("statefulset", "service") == {}
    assert (state(lab, slow), training_pods(lab)) == ("training", pods)
    failing.set("whenBusy", None)
    failing.up()
    assert (state(lab, slow), state(lab, failing)) == ("suspended", "finished")
