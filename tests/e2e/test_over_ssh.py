"""The whole program, `__main__.py` as it is, on a host over SSH; remote_node.py says what is real.

The tests build on each other in file order.
"""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.stack import Stack
from tests.e2e.asking import changes
from tests.e2e.conftest import KEPT, build_image
from tests.e2e.lab import Lab, run_settings, wait_for
from tests.e2e.remote_node import RemoteNode
from tests.node.lab import VERSION, background_up, output_file

pytestmark = pytest.mark.in_order

RUN, STEPS = "e2e-over-ssh", 20


@pytest.fixture(scope="module")
def stack(lab: Lab, remote: RemoteNode) -> Stack:
    """Return a stack that is not up. Of its image only the dependencies are in the cluster."""
    build_image(lab)
    (deps,) = (name for name in lab.trainer_images() if "-deps:" in name)
    lab.ctr("images", "tag", "--force", deps, KEPT)  # keeps the dependencies, which are gigabytes
    lab.ctr("images", "rm", "--sync", *lab.trainer_images())
    return remote.stack("e2e-ssh", run_settings(RUN, STEPS))


def kill_when(stack: Stack, what: str, is_reached: Callable[[], bool]) -> None:
    """Start `up`, and kill it with SIGKILL when `is_reached` is true."""
    with background_up(stack) as process:

        def reached_or_ended() -> bool:
            if process.poll() is not None:
                output = output_file(stack).read_text()
                raise AssertionError(f"up ended before {what} was seen:\n{output}")
            return is_reached()

        wait_for(what, reached_or_ended, 400)
        process.send_signal(signal.SIGKILL)


def test_up_that_is_killed_in_any_phase_is_finished_by_the_next(
    lab: Lab, remote: RemoteNode, stack: Stack
) -> None:
    """An `up` that is killed during the image's import, the data set's Job or the training is
    harmless.

    The next `up` finishes everything, and the run makes each step once.
    """
    kill_when(stack, "the image's import", lambda: remote.has_called("import"))
    assert "doctor: ssh://admin@" in output_file(stack).read_text()  # the doctor came first
    kill_when(stack, "the data set's Job", lambda: "job.batch/download" in jobs(lab))
    kill_when(stack, "the training", lambda: "job.batch/train-singlepod" in jobs(lab))
    stack.up()
    assert lab.wait_done(RUN)["step"] == STEPS
    assert sorted(lab.losses(RUN)) == list(range(1, STEPS + 1))


def jobs(lab: Lab) -> str:
    return lab.kubectl("get", "job", "-o", "name")


def test_kubeconfig_of_the_stack_is_enough_for_a_kubectl_of_ones_own(
    lab: Lab, stack: Stack, tmp_path: Path
) -> None:
    """With the kubeconfig in the stack's outputs, a user's own kubectl reaches the cluster.

    The kubeconfig itself opens the tunnel for this.
    """
    file = tmp_path / "kubeconfig"
    file.write_text(stack.output("kubeconfig"))
    command = [lab.cluster.kubectl[0], "--kubeconfig", str(file), "get", "nodes", "-o", "name"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("node/"), done.stderr


def test_second_up_changes_nothing_on_the_host_either(remote: RemoteNode, stack: Stack) -> None:
    """A second `up` changes no resource, and writes no file on the host."""
    before = remote.host.files()
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
    assert remote.written_since(before) == []


def test_host_that_is_lost_is_forgotten_with_all_that_was_on_it(
    remote: RemoteNode, stack: Stack
) -> None:
    """After a host is lost, `hostGone` lets `up` and `destroy` work without reaching it."""
    state = stack.export()
    remote.lose()
    try:
        stack.set("hostGone", "true")
        stack.up()
        stack.destroy()
        assert json.loads(stack.export())["deployment"].get("resources", []) == []
    finally:
        remote.find()
    # In truth nothing was lost: the next test is about a host that is there.
    stack.set("hostGone", None)
    stack.import_state(state)


def test_destroy_leaves_the_host_as_it_was(lab: Lab, remote: RemoteNode, stack: Stack) -> None:
    """`destroy` removes k3s, the image and all objects, and leaves the run's data."""
    assert f"k3s version {VERSION}" in remote.host.shell("k3s --version")
    stack.destroy()
    assert remote.node.differences() == []
    assert lab.trainer_images() == []
    assert "disttrain" not in lab.kubectl("get", "namespace", "-o", "name")
    assert lab.run_dir(RUN).is_dir()
    remote.remove_objects()
