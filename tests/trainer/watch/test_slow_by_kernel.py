"""Real runs in which the kernel slows one rank down, by its CPU quota or by its link. They need
root.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.trainer.lab import Lab, last_step, rank_environment, records, wait_for
from tests.trainer.monitoring.pods import counted_pods
from tests.trainer.monitoring.quota import Quota, quota
from tests.trainer.networks import Networks, networks
from tests.trainer.watch.slow_runs import (
    ENDLESS,
    MOST_STEPS,
    findings,
    step_of_log,
    steps_until,
)
from trainer.config import RunConfig
from trainer.watch.slow import Cause

RANKS, SLOW = 3, 1
LIMIT_SECONDS = 300
USUAL_SECONDS = 15  # after so long the usual time of the collectives is known for sure
MODEL = {"n_layer": 4, "n_head": 4, "n_embd": 64, "block_size": 64, "dropout": 0.0, "bias": True}
"""Real work: about 200,000 parameters, whose gradients are 0.8 MB."""
PATIENT = {"train__timeout_seconds": 120, "train__start_timeout_seconds": 120}


@pytest.fixture
def group(lab: Lab) -> Iterator[Quota]:
    """Yield a control group, and remove its limit and end its processes afterwards."""
    with quota(f"disttrain-slow-{uuid.uuid4().hex[:8]}") as made:
        yield made
        made.limit(None)
        lab.end_all()


@pytest.fixture
def pods(lab: Lab) -> Iterator[Networks]:
    """Yield a network for each rank, and end all processes before the networks are removed."""
    with networks(RANKS) as made:
        yield made
        lab.end_all()


@pytest.fixture
def counted(lab: Lab) -> Iterator[list[Sequence[str]]]:
    """Yield for each rank the command that puts it into a pod of its own."""
    with counted_pods(RANKS) as made:
        yield made
        lab.end_all()


def named(lab: Lab, run: RunConfig) -> list[str]:
    """Return the findings, except for other processes on the machine, as there may really
    be some.
    """
    return [line for line in findings(lab, run) if str(Cause.CROWDED) not in line]


def trained_seconds(run: RunConfig) -> float:
    """Return how long the run has trained, by the times that it has noted of its steps."""
    times = [record["unix_time"] for record in records(run)]
    return times[-1] - times[0] if times else 0.0


def test_rank_with_a_cpu_quota_is_named_as_such(lab: Lab, group: Quota) -> None:
    """A rank that gets too little CPU time by a quota is named with that cause within 20 steps, as
    the kernel counts that it was kept from running. The finding ends without the quota.
    """
    run, port = lab.config(**ENDLESS, **PATIENT, model=MODEL), free_port()
    for rank in range(RANKS):
        wrapper = group.wrapper if rank == SLOW else ()
        environment = rank_environment(rank, RANKS, port)
        lab.start("train", run, lab.rank_log(run, rank), environment, wrapper=wrapper)
    wait_for("the first steps", lambda: last_step(run) > 20, LIMIT_SECONDS, lab)
    assert named(lab, run) == []
    group.limit(5_000)
    step = step_of_log(lab, run)
    wait_for("the finding", lambda: bool(named(lab, run)), LIMIT_SECONDS, lab)
    says_so = rf"rank {SLOW} on node 0 takes .*: {Cause.THROTTLED} \("
    assert re.match(f"slow rank: {says_so}", named(lab, run)[0])
    assert steps_until(lab, run, named(lab, run)[0], step) <= MOST_STEPS
    group.limit(None)
    # or something else is found, as there may really be other work on the machine
    gone = rf"no slow rank any more: rank {SLOW} on node 0 was the last one \({Cause.THROTTLED}\)"
    over = re.compile(rf"{gone}|slow rank: (?!{says_so})")
    known = findings(lab, run).index(named(lab, run)[0]) + 1
    wait_for(
        "its end",
        lambda: any(map(over.match, findings(lab, run)[known:])),
        LIMIT_SECONDS,
        lab,
    )


def test_link_that_gets_slow_is_the_network(lab: Lab, pods: Networks) -> None:
    """A link that gets slow is found as a slow network within 20 steps, and no rank is named,
    because none comes late.
    """
    run, port = lab.config(**ENDLESS, **PATIENT, model=MODEL), free_port()
    for rank in range(RANKS):
        environment = {
            **rank_environment(rank, RANKS, port),
            "MASTER_ADDR": pods.address(0, "eth0"),
            "GLOO_SOCKET_IFNAME": "eth0",
            "GROUP_RANK": str(rank),  # each is a node
        }
        log, wrapper = lab.rank_log(run, rank), pods.inside(rank)
        lab.start("train", run, log, environment, wrapper=wrapper)
    wait_for("what is usual", lambda: trained_seconds(run) > USUAL_SECONDS, LIMIT_SECONDS, lab)
    assert named(lab, run) == []
    pods.set_rate(SLOW, "eth0", "10mbit")
    step = step_of_log(lab, run)
    wait_for("the finding", lambda: bool(named(lab, run)), LIMIT_SECONDS, lab)
    assert named(lab, run)[0].startswith("slow rank: no single rank: all come to the collectives")
    assert f": {Cause.NETWORK} (" in named(lab, run)[0]
    assert steps_until(lab, run, named(lab, run)[0], step) <= MOST_STEPS
    pods.set_rate(SLOW, "eth0", None)
    over = f"no slow rank any more: no single rank was the last one ({Cause.NETWORK})"
    wait_for("its end", lambda: named(lab, run)[-1] == over, LIMIT_SECONDS, lab)


def test_transfer_without_a_core_is_no_slow_network(lab: Lab, counted: list[Sequence[str]]) -> None:
    """The network is not called slow when other work takes the cores from the threads that
    transfer, which the kernel counts.
    """
    run, port = lab.config(**ENDLESS, **PATIENT, model=MODEL), free_port()
    ranks = list[int]()
    for rank, wrapper in enumerate(counted):
        environment = {**rank_environment(rank, RANKS, port), "GROUP_RANK": str(rank)}
        log = lab.rank_log(run, rank)
        ranks.append(lab.start("train", run, log, environment, wrapper=wrapper).pid)
    wait_for("what is usual", lambda: trained_seconds(run) > USUAL_SECONDS, LIMIT_SECONDS, lab)
    assert named(lab, run) == []
    for_all = re.compile(rf"slow rank: no single rank: .*: {Cause.CROWDED} \(")
    with other_work(), others_idle(ranks):
        wait_for(
            "the finding",
            lambda: any(map(for_all.match, findings(lab, run))),
            LIMIT_SECONDS,
            lab,
        )
    assert named(lab, run) == []


@contextmanager
def other_work() -> Iterator[None]:
    """Compute in a process for each core during the block."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def others_idle(processes: Sequence[int]) -> Iterator[None]:
    """During the block, give the threads of the processes a core only if nobody else wants it,
    except the first threads, which train.
    """
    threads = [
        int(thread.name)
        for process in processes
        for thread in Path(f"/proc/{process}/task").iterdir()
        if int(thread.name) != process
    ]
    for thread in threads:
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    try:
        yield
    finally:
        for thread in threads:
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
