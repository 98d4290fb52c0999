"""In real runs that stand still, the rank that holds up the others is named, and those that only
wait for it are not.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.in_depth import in_depth
from tests.trainer.accidents import Accident
from tests.trainer.lab import Lab, free_port, last_step, wait_for
from tests.trainer.launch.hanging import ENDLESS, hang_event, hangs
from tests.trainer.process_tree import processes_below, ranks_below
from trainer.events.event import Name, event_file, parse_events
from trainer.launch.exit_codes import ExitCode

MOST_SECONDS = 30.0


@pytest.fixture
def stopped(lab: Lab) -> Iterator[list[int]]:
    """Yield a list for processes that the test stops. They are continued at the end, before the lab
    ends them, because a stopped process would stay.
    """
    pids = list[int]()
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError):  # its entrypoint may have ended it
            os.kill(pid, signal.SIGCONT)


def wait_for_hang(lab: Lab) -> str:
    """Wait for the line that reports the hang, assert that by its own words it came in time, and
    return it.
    """
    wait_for("the hang to be told", lambda: bool(hangs(lab)), 120, lab)
    (line,) = hangs(lab)
    found = re.search(r"no step for (\d+) s", line)
    assert found is not None
    assert float(found[1]) <= MOST_SECONDS
    return line


@pytest.mark.parametrize("nodes", [1, in_depth(3)])
def test_a_stopped_rank_is_named_and_its_victims_are_not(
    lab: Lab, stopped: list[int], nodes: int
) -> None:
    """A rank that is stopped by SIGSTOP is named with the state that the kernel gives, although it
    cannot answer. The run goes on when the rank is continued.
    """
    run, port = lab.config(**ENDLESS), free_port()
    pods = [lab.start_entrypoint(run, node, nodes, 3 // nodes, port) for node in range(nodes)]
    wait_for("30 steps", lambda: last_step(run) > 30, 120, lab)
    stopped.append([pid for pod in pods for pid in ranks_below(pod.pid)][1])
    os.kill(stopped[0], signal.SIGSTOP)
    line = wait_for_hang(lab)
    assert re.search(
        rf"rank 1 on node {min(1, nodes - 1)} does not answer, state T \(stopped\)", line
    )
    assert "; ranks 0, 2 wait for it in " in line
    event = hang_event(lab, run)
    assert (event.values["rank"], event.values["process"]) == (1, "T")
    os.kill(stopped[0], signal.SIGCONT)
    step = last_step(run)
    wait_for("further steps", lambda: last_step(run) > step + 10, 120, lab)
    assert len(hangs(lab)) == 1


def test_a_lock_that_is_never_given_is_named_by_its_python_line(lab: Lab, tmp_path: Path) -> None:
    """A rank that waits for ever in Python code is named with its step, its phase and the line of
    code.
    """
    accident = Accident("lock never given", 2, str(tmp_path / "locked"))
    run = lab.config(**ENDLESS)
    lab.start_entrypoint(run, 0, 1, 3, free_port(), accidents=[accident])
    wait_for("30 steps", lambda: last_step(run) > 30, 120, lab)
    accident.begin()
    line = wait_for_hang(lab)
    step = last_step(run) + 1
    where = rf"rank 2 on node 0 is in the forward and backward pass of step {step}, at "
    assert re.search(where + r"tests/trainer/accidents\.py:\d+ \(wait_for_ever\)", line)
    assert line.endswith(f"; ranks 0, 1 wait for it in the sum of the gradients of step {step}")
    event = hang_event(lab, run)
    assert (event.values["rank"], event.values["phase"], event.values["step"]) == (
        2,
        "passes",
        step,
    )


def test_a_volume_that_hangs_ends_no_round(lab: Lab, tmp_path: Path) -> None:
    """If the volume of a rank does not answer a read of training data, all ranks wait for it for
    longer than `train.timeout_seconds`. A line names the rank, and no step is lost.
    """
    accident = Accident("hanging data", 1, str(tmp_path / "hangs"))
    run = lab.config(**{**ENDLESS, "train__timeout_seconds": 5})
    lab.start_entrypoint(run, 0, 1, 2, free_port(), accidents=[accident])
    wait_for("30 steps", lambda: last_step(run) > 30, 120, lab)
    accident.begin()
    line = wait_for_hang(lab)
    step = last_step(run) + 1
    assert f": rank 1 on node 0 is in data loading of step {step}, at " in line
    assert line.endswith(f"; rank 0 waits for it in a collective of data loading of step {step}")

    def lives_on() -> bool:  # the entrypoint writes such an event 10 s after the last other one
        events, _ = parse_events(event_file(run.run_dir, 0).read_bytes())
        names = [event.name for event in events]
        return Name.ALIVE in names[names.index(Name.HANG) :]

    hang_event(lab, run)
    wait_for("a sign of life after the limit", lives_on, 60, lab)
    accident.end()
    wait_for("further steps", lambda: last_step(run) > step + 10, 120, lab)
    assert "] round 2" not in lab.node_log(0).read_text()


def test_a_rank_without_data_for_too_long_is_named(lab: Lab, tmp_path: Path) -> None:
    """If a rank has no training data for longer than `train.start_timeout_seconds`, all ranks end
    with its name, and may be started again.
    """
    accident = Accident("hanging data", 1, str(tmp_path / "hangs"))
    limits = {"train__timeout_seconds": 5, "train__start_timeout_seconds": 5}
    run = lab.config(**{**ENDLESS, **limits})
    ranks = lab.fork_ranks(run, 2, accidents=[accident])
    wait_for("30 steps", lambda: last_step(run) > 30, 120, lab)
    accident.begin()
    assert lab.ended(ranks) == [ExitCode.RETRYABLE] * 2
    why = r"rank 0: rank 1 has waited for \d+ s for the data of step \d+, longer than "
    assert re.search(why, lab.rank_log(run, 0).read_text())


def test_a_rank_that_leaves_out_a_collective_is_named(lab: Lab, tmp_path: Path) -> None:
    """A rank that leaves out a collective is named, and no other. With gloo it does not hang: its
    next message has another length than expected, and ends that rank.
    """
    accident = Accident("skipped collective", 1, str(tmp_path / "skips"))
    run = lab.config(**ENDLESS)
    lab.start_entrypoint(run, 0, 1, 3, free_port(), accidents=[accident])
    wait_for("30 steps", lambda: last_step(run) > 30, 120, lab)
    accident.begin()
    is_named = lambda: "] rank 1 was ended by SIGABRT" in lab.node_log(0).read_text()  # noqa: E731
    wait_for("the rank to be named", is_named, 60, lab)
    assert not re.search(r"\] rank [02] was ended", lab.node_log(0).read_text())


def test_a_pod_that_stands_still_with_its_ranks_is_named_by_its_node(
    lab: Lab, stopped: list[int]
) -> None:
    """A pod whose entrypoint and ranks all stand still is named by its node, because nobody is left
    there who could say where the rank is.
    """
    run, port = lab.config(**ENDLESS), free_port()
    pods = [lab.start_entrypoint(run, node, 3, 1, port) for node in range(3)]
    wait_for("30 steps", lambda: last_step(run) > 30, 120, lab)
    stopped += processes_below(pods[2].pid)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    line = wait_for_hang(lab)
    assert "node(s) 2 did not say where their ranks are; ranks 0, 1 wait in " in line
    event = hang_event(lab, run)
    assert (event.values["rank"], event.values["node"]) == (None, 2)


def test_single_rank_that_hangs_starts_again(lab: Lab, tmp_path: Path) -> None:
    """A run with a single rank that hangs starts again after `train.timeout_seconds`. No other rank
    waits for that rank, so only its entrypoint can see that it makes no step.
    """
    accident = Accident("lock never given", 0, str(tmp_path / "locked"))
    slow = Accident("slow forward", 0, str(tmp_path / "slow"), 0.1)  # 4 times in each step
    slow.begin()  # or a fast machine could make all its steps between two looks
    run = lab.config(**{**ENDLESS, "train__timeout_seconds": 5})
    lab.start_entrypoint(run, 0, 1, 1, free_port(), accidents=[accident, slow])
    wait_for("12 steps", lambda: last_step(run) > 12, 120, lab)
    accident.begin()
    begun = "] round 2: 1 node(s)"
    wait_for("the next round", lambda: begun in lab.node_log(0).read_text(), 120, lab)
    assert re.search(
        r"\] training stopped: rank 0 has not come further for \d+ s in the forward and backward "
        r"pass of step \d+, longer than train\.timeout_seconds \(5\)",
        lab.node_log(0).read_text(),
    )
    accident.end()
    step = last_step(run)
    wait_for("further steps", lambda: last_step(run) not in range(step + 10), 120, lab)


@pytest.mark.parametrize("nodes", [1, in_depth(2)])
def test_hang_ends_after_the_limit_of_training(lab: Lab, stopped: list[int], nodes: int) -> None:
    """With gloo, too, a hang ends after `train.timeout_seconds`. The limit of a gloo group is the
    one of the start, fixed when the group is made, and is here too long to end the wait.
    """
    run, port = lab.config(**{**ENDLESS, "train__timeout_seconds": 5}), free_port()
    pods = [lab.start_entrypoint(run, node, nodes, 2 // nodes, port) for node in range(nodes)]
    wait_for("30 steps", lambda: last_step(run) > 30, 120, lab)
    stopped.append([pid for pod in pods for pid in ranks_below(pod.pid)][1])
    os.kill(stopped[0], signal.SIGSTOP)
    begun = f"] round 2: {nodes} node(s)"
    wait_for("the next round", lambda: begun in lab.node_log(0).read_text(), 120, lab)
    step = last_step(run)
    reason = (
        r"\] training stopped: rank 0 has waited for \d+ s in .* of step \d+, longer than "
        r"train\.timeout_seconds \(5\); starting again at once"
    )
    assert re.search(reason, lab.node_log(0).read_text())
    wait_for("further steps", lambda: last_step(run) not in range(step + 10), 120, lab)
