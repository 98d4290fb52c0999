"""Accounts of real runs that are killed at random moments, compared with a clock outside of the
runs.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.trainer.accidents import Accident
from tests.trainer.forked import Forked
from tests.trainer.lab import Lab, free_port, last_step, rank_environment, records, wait_for
from tests.trainer.process_tree import processes_below, ranks_below
from trainer.config import RunConfig
from trainer.events.account import Account, account_of
from trainer.events.event import Event, Name, event_file, parse_events
from trainer.events.history import ASKED, KILLED
from trainer.events.reports import LEAST_SECONDS
from trainer.events.span import Kind, Phase
from trainer.launch.exit_codes import ExitCode

ENDLESS = {"train__max_steps": 1_000_000, "train__decay_steps": 200, "checkpoint__interval": 300}
KILLS = int(os.environ.get("DISTTRAIN_KILLS", "6"))
"""An even number; docs/goodput.md has the figures of a run with 30."""
SLOWER_SECONDS = float(os.environ.get("DISTTRAIN_SLOWER_SECONDS", "0"))
"""How much longer each step takes: steps of more than `LEAST_SECONDS` are reported one by one."""


def read(run: RunConfig, node: int = 0) -> tuple[list[Event], int]:
    """Return the events in a node's file and the number of damaged lines."""
    return parse_events(event_file(run.run_dir, node).read_bytes())


def account(run: RunConfig) -> Account:
    return account_of(*read(run))


def count(run: RunConfig, name: Name) -> int:
    """Return how many events of this name node 0 has written."""
    return sum(event.name == name for event in read(run)[0])


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_for_steps(lab: Lab, run: RunConfig, starts: int) -> None:
    """Wait until start number `starts` of the run has made its first step."""

    def has_stepped() -> bool:
        path = event_file(run.run_dir, 0)
        return path.exists() and count(run, Name.FIRST_STEP) >= starts

    wait_for(f"the first step of start {starts}", has_stepped, 60, lab)


def kill(process: Forked, run: RunConfig, whole_pod: bool) -> list[tuple[int, float]]:
    """Kill a rank or the whole pod, and return the steps made by then with their times of day."""
    pids = processes_below(process.pid)
    ranks = ranks_below(process.pid)
    signal_all(ranks, signal.SIGSTOP)
    made = [(int(record["step"]), float(record["unix_time"])) for record in records(run)]
    signal_all(pids if whole_pod else ranks[-1:], signal.SIGKILL)
    if whole_pod:
        process.wait(60)
    else:
        signal_all(ranks[:-1], signal.SIGCONT)
    return made


def times_around(what: str, condition: Callable[[], bool], lab: Lab) -> tuple[float, float]:
    """Wait until the condition, which does not hold yet, does. Return times of the monotonic clock
    before and after that, which are far apart only if this process had to wait for the processor.
    """
    before = time.monotonic()

    def holds() -> bool:
        nonlocal before
        looked = time.monotonic()
        if condition():
            return True
        before = looked
        return False

    wait_for(what, holds, 120, lab)
    return before, time.monotonic()


@pytest.mark.slow
@pytest.mark.timeout(600 + 60 * KILLS)
def test_account_agrees_with_a_clock_outside_of_a_run_that_is_killed(lab: Lab) -> None:
    """The account of a run that is killed several times agrees with a clock outside of it: the wall
    time, the steps and time that were lost, the time without a pod, and the reason of each start.
    """
    lab.train(lab.config(run_name="before", train__max_steps=5), 1)  # imports torch before forks
    draw = random.Random("goodput")
    run, port = lab.config(**ENDLESS), free_port()
    killed = list[list[tuple[int, float]]]()
    # The instants of kills, starts and the end are known between two looks at the clock. On a busy
    # machine these may be seconds apart.
    least_away = most_away = 0.0
    slow = Accident("slow forward", 0, str(lab.root / "slow"), SLOWER_SECONDS)
    slow.begin()
    before_start = time.monotonic()
    pod = lab.start_entrypoint(run, 0, 1, 2, port, accidents=[slow])
    after_start = time.monotonic()
    for number in range(KILLS):
        wait_for_steps(lab, run, number + 1)
        time.sleep(draw.uniform(1, 5))
        whole_pod = number % 2 == 1
        before_kill = time.monotonic()
        killed.append(kill(pod, run, whole_pod))
        if whole_pod:
            since = time.monotonic()
            time.sleep(draw.uniform(0, 2.5))
            least_away += time.monotonic() - since
            pod = lab.start_entrypoint(run, 0, 1, 2, port, accidents=[slow])
            most_away += time.monotonic() - before_kill
    wait_for_steps(lab, run, KILLS + 1)
    pod.terminate()
    assert pod.wait(60) == ExitCode.PREEMPTED
    last = lab.config(**{**ENDLESS, "train__max_steps": last_step(run) + 5})
    pod = lab.start_entrypoint(last, 0, 1, 2, port)
    before_end, after_end = times_around("the done marker", (run.run_dir / "done.json").exists, lab)
    least_wall, most_wall = before_end - after_start, after_end - before_start
    assert pod.wait(60) == ExitCode.DONE

    found, events = account(run), read(run)[0]
    assert found.is_finished
    counted_and_paused = found.wall_seconds + found.paused_seconds
    tolerance = 0.005 * most_wall + 1
    assert least_wall - tolerance <= counted_and_paused <= most_wall + tolerance
    assert abs(sum(found.seconds.values()) - found.wall_seconds) < 1e-6
    assert found.damaged_lines <= KILLS
    assert len(found.starts) == KILLS + 2
    assert all(start.has_stepped for start in found.starts)
    assert [event.name for event in events].count(Name.POD_STARTED) == 2 + KILLS // 2
    pods_killed = [start.reason == KILLED for start in found.starts[1:-1]]
    assert pods_killed == [False, True] * (KILLS // 2)
    assert found.starts[-1].reason == ASKED
    lost_steps, lost_seconds = 0, 0.0
    for made, start, next_start in zip(killed, found.starts, found.starts[1:], strict=False):
        times = dict(made)
        # Steps are made again after the checkpoint that the next start continues from. The first
        # step of each start counts as a part of the start.
        since = next_start.step if next_start.step > start.step else start.step + 1
        lost_steps += max(times) - next_start.step
        lost_seconds += times[max(times)] - times[since]
    print(
        f"{KILLS} kills in {most_wall:.2f} s by the clock outside, {found.wall_seconds:.2f} s "
        f"in the account; steps made again: {lost_steps}, {found.lost_steps}; "
        f"their time: {lost_seconds:.2f} s, {found.seconds[Kind.LOST]:.2f} s; "
        f"no pod: {least_away:.2f} s, {found.seconds[Kind.DOWN]:.2f} s"
    )
    reported = [int(event.values["steps"]) for event in events if event.name == Name.REPORT]
    assert abs(found.lost_steps - lost_steps) <= KILLS * max(reported)
    one_report_each = KILLS * LEAST_SECONDS
    assert abs(found.seconds[Kind.LOST] - lost_seconds) <= one_report_each
    # A pod that was killed is known to have lived until its last line, a report or a sign of life.
    assert least_away - 0.1 <= found.seconds[Kind.DOWN] <= most_away + one_report_each
    told = [(event.monotonic_seconds, event.name, event.values) for event in events]
    assert found.starts[2].phases[Phase.DETECT] > 0, told  # no pod was there


def test_each_node_has_a_file_and_node_0_waits_for_the_others(lab: Lab) -> None:
    """Each node writes a file of its own, and the time in which node 0 waits for a lost node counts
    as rendezvous.
    """
    run, port = lab.config(**ENDLESS), free_port()
    nodes = [lab.start_entrypoint(run, node, 2, 1, port) for node in range(2)]
    wait_for_steps(lab, run, 1)
    signal_all(processes_below(nodes[1].pid), signal.SIGKILL)
    nodes[1].wait(60)
    since = time.monotonic()
    wait_for("node 0 to wait", lambda: count(run, Name.GATHERING) >= 2, 60, lab)
    time.sleep(0.5)
    waited_seconds = time.monotonic() - since
    nodes[1] = lab.start_entrypoint(run, 1, 2, 1, port)
    wait_for_steps(lab, run, 2)
    for node in nodes:
        node.terminate()
    assert [node.wait(60) for node in nodes] == [ExitCode.PREEMPTED] * 2
    found = account(run)
    assert len(found.starts) == 3  # the third one has not come yet
    assert found.gpus == 2
    phases = found.starts[1].phases
    assert phases[Phase.RENDEZVOUS] >= 0.5
    assert waited_seconds <= phases[Phase.DETECT] + phases[Phase.START] + phases[Phase.RENDEZVOUS]
    others = [event.name for event in read(run, 1)[0] if event.name != Name.ALIVE]
    assert others.count(Name.POD_STARTED) == 2
    assert Name.REPORT not in others
    assert others[-1] == Name.ENDED


def test_rank_without_an_entrypoint_tells_the_same(lab: Lab) -> None:
    """Ranks without an entrypoint, as under torchrun, have an account, too: rank 0 also writes what
    an entrypoint would.
    """
    run = lab.config(train__max_steps=30, checkpoint__interval=10, eval__interval=10)
    lab.train(run, 2)
    found = account(run)
    assert found.is_finished
    assert found.step == found.saved_step == 30
    assert found.tokens == 30 * 12 * 16
    assert found.seconds[Kind.EVALUATION] > 0
    assert found.gpus == 2
    names = [event.name for event in read(run)[0]]
    assert names[:2] == [Name.POD_STARTED, Name.IMPORTS_DONE]
    assert names[-1] == Name.ENDED


def test_run_that_is_finished_writes_nothing_more(lab: Lab) -> None:
    """The account of a finished run stays the same however often Kubernetes starts its pod
    again.
    """
    run, port = lab.config(train__max_steps=5), free_port()
    assert lab.start_entrypoint(run, 0, 1, 1, port).wait(60) == ExitCode.DONE
    before = event_file(run.run_dir, 0).read_bytes()
    assert lab.start_entrypoint(run, 0, 1, 1, port).wait(60) == ExitCode.DONE
    assert event_file(run.run_dir, 0).read_bytes() == before


@pytest.mark.parametrize("is_folder", [True, False])
def test_run_trains_on_where_its_events_cannot_be_written(lab: Lab, is_folder: bool) -> None:
    """A run trains on when its events cannot be written, and warns once for each process."""
    run = lab.config(train__max_steps=5)
    run.run_dir.mkdir(parents=True)
    if is_folder:
        event_file(run.run_dir, 0).mkdir(parents=True)
    else:
        (run.run_dir / "events").write_text("in the way")
    assert lab.start_entrypoint(run, 0, 1, 1, free_port()).wait(60) == ExitCode.DONE
    assert lab.logs().count("events cannot be written") == 2  # the entrypoint's and rank 0's


def test_account_of_a_rank_started_by_hand_needs_no_pod(lab: Lab) -> None:
    """A rank that was started by hand and stopped has an account with its saved step and no unsaved
    time.
    """
    run = lab.config(**ENDLESS)
    pid = lab.fork_rank(run, 0, rank_environment(0, 1, free_port()))
    wait_for_steps(lab, run, 1)
    os.kill(pid, signal.SIGTERM)
    assert lab.ended([pid]) == [ExitCode.PREEMPTED]
    found = account(run)
    assert not found.is_finished
    assert found.saved_step == found.step > 0
    assert found.unsaved_seconds == 0


def test_process_that_is_stopped_for_a_while_is_a_hang(lab: Lab) -> None:
    """The time in which a process is stopped counts as a hang, or as a wait for data if it was
    stopped while it put a batch together.
    """
    run = lab.config(**{**ENDLESS, "checkpoint__interval": 0})
    pid = lab.fork_rank(run, 0, rank_environment(0, 1, free_port()))
    wait_for_steps(lab, run, 1)
    wait_for("reports", lambda: count(run, Name.REPORT) >= 3, 60, lab)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(4)
    reports = count(run, Name.REPORT)
    os.kill(pid, signal.SIGCONT)
    wait_for("the next reports", lambda: count(run, Name.REPORT) >= reports + 2, 60, lab)
    os.kill(pid, signal.SIGTERM)
    assert lab.ended([pid]) == [ExitCode.PREEMPTED]
    seconds = account(run).seconds
    assert seconds[Kind.HANG] + seconds[Kind.DATA] >= 3.5
