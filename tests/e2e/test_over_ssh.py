"""The whole program, `__main__.py` as it is, on a host over SSH; remote_node.py says what is real.

The tests build on each other in file order.
"""

import signal
from collections.abc import Callable, Iterator

import pytest

from sandbox.stack import Stack
from tests.e2e.lab import Lab, run_settings, wait_for
from tests.e2e.remote_node import RemoteNode
from tests.e2e.test_topologies import changes
from tests.node.lab import background_up

RUN, STEPS = "e2e-over-ssh", 20


@pytest.fixture(scope="module")
def remote(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteNode]:
    made = RemoteNode(lab, tmp_path_factory.mktemp("remote"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def stack(remote: RemoteNode) -> Stack:
    return remote.stack("e2e-ssh", run_settings(RUN, STEPS))


def test_up_that_is_killed_in_any_phase_is_finished_by_the_next(
    lab: Lab, remote: RemoteNode, stack: Stack
) -> None:
    reached: list[tuple[str, Callable[[], bool]]] = [
        ("the image", lambda: bool(remote.calls("ctr"))),
        ("the data set's Job", lambda: "download" in lab.kubectl("get", "job", "-o", "name")),
        ("the training", lambda: "train-singlepod" in lab.kubectl("get", "job", "-o", "name")),
    ]
    for what, is_reached in reached:
        with background_up(stack) as process:
            wait_for(what, is_reached, 120)
            assert process.poll() is None, f"{what}: it had ended before it was killed"
            process.send_signal(signal.SIGKILL)
    stack.up()
    assert lab.wait_done(RUN)


def test_second_up_changes_nothing(stack: Stack) -> None:
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
