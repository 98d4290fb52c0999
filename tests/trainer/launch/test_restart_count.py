"""A run that was lost twice says so in words that `./disttrain status` reads as the second
restart.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.status.progress import Progress, read_progress
from tests.trainer.lab import Lab, free_port, wait_for
from tests.trainer.process_tree import ranks_below
from tests.trainer.program.desk import Desk
from trainer.launch.exit_codes import ExitCode

MOST = 2
WAITS = """
    import time
    print("it trains", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Yield a desk whose runs have a revision, as pods have. It ends all its processes
    afterwards.
    """
    made = Desk(tmp_path)
    made.revision = "one"
    yield made
    made.end_all()


def seen(log: str) -> Progress:
    """Return the progress that `./disttrain status` reads from the log of one pod."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return read_progress("\n".join(f"{now} {line}" for line in log.splitlines()))


def made_at(lab: Lab) -> int | None:
    """Return when node 1 became ready, in ns, or None if it is not ready."""
    try:
        return (lab.ready_dir(1) / "ready").stat().st_ctime_ns
    except FileNotFoundError:
        return None


def test_ranks_lost_twice_are_told_as_restart_two(lab: Lab) -> None:
    """Both nodes count the loss of ranks alike, although the ranks of only one of them were
    killed.
    """
    run, port = lab.config(train__max_steps=1_000_000, train__decay_steps=200), free_port()
    nodes = [lab.start_entrypoint(run, node, 2, 1, port) for node in range(2)]
    made = None
    for number in (1, 2):
        # Readiness comes with the first step of each start, in a file of its own.
        is_new = lambda old=made: made_at(lab) not in (None, old)  # noqa: E731
        wait_for(f"the ranks of start {number} to step", is_new, 120, lab)
        made = made_at(lab)
        os.kill(ranks_below(nodes[1].pid)[0], signal.SIGKILL)
        said = f"(restart {number} of {run.train.max_restarts} without a newer checkpoint)"
        for node in range(2):
            told = lambda node=node, said=said: said in lab.node_log(node).read_text()  # noqa: E731
            wait_for(f"node {node} to tell of loss {number}", told, 120, lab)
        for node in range(2):
            lines = lab.node_log(node).read_text().splitlines()
            place = max(i for i, line in enumerate(lines) if said in line)
            found = seen("\n".join(lines[: place + 1])).trouble
            assert re.findall(r"restart (\d+) of", found) == [str(number)]


def test_pods_killed_twice_are_told_as_pod_restart_two(desk: Desk) -> None:
    """A new pod prints how many pods before it have failed, although it has seen none of them."""
    config = desk.python(WAITS, train={"max_restarts": 0, "max_pod_failures": MOST})
    for number in range(MOST + 1):
        before = len(desk.log()) if number else 0
        pod = desk.start(config)
        desk.wait_for("it trains", times=number + 1)
        told = re.findall(r"pod restart (\d+) of (\d+)", seen(desk.log()[before:]).trouble)
        assert told == ([(str(number), str(MOST))] if number else [])
        assert desk.kill(pod) == -signal.SIGKILL
    assert desk.run(config) == ExitCode.FATAL
    assert desk.log().count("pod restart ") == MOST


SAVES = """
    import os, pathlib, time
    folder = pathlib.Path(os.environ["DISTTRAIN_CHECKPOINT_DIR"])
    if pathlib.Path("{may_save}").exists():
        (folder / "saved").write_text("a checkpoint")
    print("it trains", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("saves", [False, True])
def test_pod_after_progress_tells_of_no_failure(desk: Desk, saves: bool) -> None:
    """A pod prints an earlier failure only if no checkpoint has been saved since. The second pod of
    the test is asked to go and does not fail, so only its checkpoint decides what the third one
    prints.
    """
    may_save = desk.root / "may-save"
    program = SAVES.replace("{may_save}", str(may_save))
    config = desk.python(program, train={"max_restarts": 0, "max_pod_failures": MOST})
    pod = desk.start(config)
    desk.wait_for("it trains")
    assert desk.kill(pod) == -signal.SIGKILL
    if saves:
        may_save.touch()
    pod = desk.start(config)
    desk.wait_for("it trains", times=2)
    assert desk.log().count("pod restart 1 of") == 1
    os.kill(pod.pid, signal.SIGTERM)
    assert pod.wait(60) == ExitCode.PREEMPTED, desk.log()
    desk.start(config)
    desk.wait_for("it trains", times=3)
    assert desk.log().count("pod restart 1 of") == (1 if saves else 2)
