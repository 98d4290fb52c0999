"""`./disttrain logs` and `stop` while the first `pulumi up` of a run still waits for the training.

The run is a stack of its own on a platform without a run. No `up` of this stack has ended yet, so
it has no outputs. The tests build on each other in file order. `make test-engines` runs this file.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pytest

from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, people_run
from tests.e2e.lab import Lab, wait_for
from tests.node.lab import background_up, output_file

pytestmark = pytest.mark.in_order

PLATFORM, FAILS = "e2e-beside", "e2e-beside-fails"
MISSING = "No module named 'psutil'"
LIMIT_SECONDS = 300


@pytest.fixture(scope="module")
def platform(lab: Lab) -> Iterator[Stack]:
    made = lab.stack(PLATFORM, "sandbox", {"topology": "none"})
    made.up()
    yield made
    made.destroy()


@contextmanager
def run_of(lab: Lab, name: str, settings: Mapping[str, str | None]) -> Iterator[Stack]:
    """Yield a stack with a run on the platform, which is not up, and destroy it afterwards."""
    made = lab.stack(name, "sandbox-multipod", {"platform": PLATFORM, **settings})
    try:
        yield made
    finally:
        with suppress(PulumiFailedError):  # `nothing_is_left` reports what is left then
            made.destroy()


@pytest.fixture(scope="module")
def failing(lab: Lab, platform: Stack) -> Iterator[Stack]:
    """Yield a stack with a program that fails at each start until a file is on the volume.

    Then the program makes one step and ends.
    """
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
    ours = {"preset": None, "datasetFile": None}  # the template sets these, for our trainer
    with run_of(lab, FAILS, {**ours, **settings, **words}) as made:
        yield made
    (lab.cluster.data_root / FAILS).unlink(missing_ok=True)


def typed(stack: Stack, words: str) -> tuple[int, str]:
    """Return the exit status and the output of a command of ./disttrain about this stack's run."""
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
    """Return what the `up` of `background_up` has written so far, without its line breaks."""
    return " ".join(output_file(stack).read_text().split())


def follow_logs(stack: Stack) -> subprocess.Popen[str]:
    """Start `./disttrain logs`, which goes on until the pods end; its stdout has all output."""
    return subprocess.Popen(
        ["./disttrain", "logs", "--stack", stack.name],
        cwd=stack.project,
        env=stack.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def state(lab: Lab, stack: Stack) -> str:
    """Return the state of the stack's run from `./disttrain status`.

    The command ends with status 1 if somebody has to look at a run.
    """
    command = f"./disttrain status --stack {stack.name} --json || test $? = 1"
    runs = json.loads(people_run(lab, stack, command))["runs"]
    return next(run["state"] for run in runs if run["stack"].rpartition("/")[2] == stack.name)


def training_pods(lab: Lab) -> list[str]:
    """Return the training pods of all stacks. A stack whose first `up` goes on has no outputs to
    ask for.
    """
    selector = "--selector=app.kubernetes.io/component=training"
    return lab.kubectl("get", "pod", selector, "-o", "name").split()


def test_stop_ends_up_that_waits_for_ranks_that_fail(lab: Lab, failing: Stack) -> None:
    """`stop` ends a first `up` that waits for failing ranks, and this `up` ends well.

    Both commands name `resume`, which lets the run go on. `logs` shows the failure, and ends with
    the pods. Otherwise `up` would say that the training has failed, and what to fix.
    """
    with background_up(failing) as up:
        wait_for("a failed start", lambda: MISSING in said_by_up(failing), LIMIT_SECONDS)
        status, shown = typed(failing, "logs --no-follow")
        assert (status, MISSING in shown) == (0, True), shown
        with follow_logs(failing) as logs:
            assert logs.stdout
            assert any(MISSING in line for line in logs.stdout)  # stops reading at this line
            status, stopped = typed(failing, "stop")
            assert status == 0, stopped
            logs.communicate(timeout=LIMIT_SECONDS)
        assert logs.returncode == 0  # the command ends with the pods
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
    """`resume` lets the run go on to its end, and the next `up` has nothing to do."""
    (lab.cluster.data_root / FAILS).touch()
    status, shown = typed(failing, "resume")
    assert status == 0, shown
    wait_for("its end", lambda: state(lab, failing) == "finished", LIMIT_SECONDS)
    assert set(changes(failing.up("--expect-no-changes"))) == {"unchanged"}
