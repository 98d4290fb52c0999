"""kill -9 and SIGTERM at random instants: what is lost, and that nothing else ever is.

The instants are drawn from fixed seeds, as a step to wait for and a delay after it. The ranks are
real processes, started by fork. Kills of torchrun and of pods are in test_entrypoint.py.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable

import pytest

from tests.trainer.lab import (
    Lab,
    assert_bitwise_equal,
    checkpoints,
    last_step,
    records,
    wait_for,
)
from trainer import checkpoint
from trainer.config import RunConfig
from trainer.exit_codes import ExitCode

INTERVAL = 10
SMALL = {
    "model__n_layer": 1,
    "model__n_embd": 8,
    "model__dropout": 0.1,
    "train__global_batch_size": 5,
    "train__warmup_steps": 0,
    "train__timeout_seconds": 5,
    "checkpoint__interval": INTERVAL,
}
SLOW_DISK_SECONDS = 0.02  # per file: a save then takes longer than several steps


def soon(what: str, condition: Callable[[], bool], lab: Lab) -> None:
    wait_for(what, condition, 60, lab, pause_seconds=0.002)


def newest(run: RunConfig) -> int:
    return checkpoint.latest_verified(checkpoints(run), lambda line: pytest.fail(line)) or 0


def starts(lab: Lab, run: RunConfig) -> list[int]:
    """The steps that the starts so far have continued after."""
    log = lab.rank_log(run, 0)
    text = log.read_text() if log.exists() else ""
    found = re.findall(r"no checkpoint: starting at step (0)|continuing after step (\d+)", text)
    return [int(none or step) for none, step in found]


def reported_saves(lab: Lab, run: RunConfig) -> list[int]:
    text = lab.rank_log(run, 0).read_text()
    return [int(step) for step in re.findall(r"checkpoint step-(\d+) saved", text)]


def is_saving(run: RunConfig) -> bool:
    return any(checkpoints(run).glob(".tmp-step-*"))


@pytest.mark.parametrize(("asynchronous", "parallel"), [(False, "ddp"), (True, "fsdp")])
def test_after_22_kills_of_a_rank_the_run_is_the_uninterrupted_one(
    lab: Lab, asynchronous: bool, parallel: str
) -> None:
    draw = random.Random(f"kill -9 {parallel}")
    settings = {
        **SMALL,
        "train__max_steps": 420,
        "train__parallel": parallel,
        "checkpoint__asynchronous": asynchronous,
    }
    run = lab.config(run_name="killed", **settings)
    # A save that is under way is lost as well, and with it the steps since the one before it.
    most_lost = 2 * INTERVAL if asynchronous else INTERVAL
    killed_in_save = 0
    for kill in range(22):
        before, known = newest(run), len(starts(lab, run))
        pids = lab.fork_ranks(run, 2, SLOW_DISK_SECONDS)
        soon("the start", lambda known=known: len(starts(lab, run)) > known, lab)
        if kill % 3 == 2:
            soon("a save", lambda: is_saving(run), lab)
            time.sleep(draw.uniform(0, 4 * SLOW_DISK_SECONDS))
        else:
            target = before + draw.randint(1, 24)
            soon("a step", lambda target=target: last_step(run) >= target, lab)
            time.sleep(draw.uniform(0, 0.01))
        victim = draw.randrange(2)
        os.kill(pids[victim], signal.SIGKILL)
        codes = lab.ended(pids, seconds=30)
        assert codes[victim] == -signal.SIGKILL
        assert codes[1 - victim] == ExitCode.RETRYABLE, lab.logs()  # told, not left hanging
        killed_in_save += is_saving(run)
        saved = reported_saves(lab, run)
        assert newest(run) >= max(saved, default=0)
        assert newest(run) >= last_step(run) - most_lost
        assert starts(lab, run)[-1] == before
    assert killed_in_save >= 3
    lab.train(run, 2)
    assert not is_saving(run)
    whole = lab.config(run_name="uninterrupted", **settings)
    lab.train(whole, 2)
    assert_bitwise_equal(whole, run)


def test_20_requests_to_stop_lose_no_step(lab: Lab) -> None:
    draw = random.Random("SIGTERM")
    settings = {
        **SMALL,
        "train__max_steps": 400,
        "eval__interval": 15,
        "eval__batch_size": 4,  # many batches: an evaluation takes as long as many steps
    }
    run = lab.config(run_name="stopped", **settings)
    stopped_in_save = 0
    for attempt in range(20):
        before, known = newest(run), len(starts(lab, run))
        pids = lab.fork_ranks(run, 2, SLOW_DISK_SECONDS)
        soon("the start", lambda known=known: len(starts(lab, run)) > known, lab)
        match attempt % 4:
            case 0:  # at the first step
                time.sleep(draw.uniform(0, 0.05))
            case 1:  # in an evaluation
                target = (before + 2) // 15 * 15 + 14
                soon("a step", lambda target=target: last_step(run) >= target, lab)
                time.sleep(draw.uniform(0.01, 0.05))
            case 2:  # in a save
                soon("a save", lambda: is_saving(run), lab)
                time.sleep(draw.uniform(0, 2 * SLOW_DISK_SECONDS))
                stopped_in_save += is_saving(run)
            case _:
                target = before + draw.randint(1, 20)
                soon("a step", lambda target=target: last_step(run) >= target, lab)
                time.sleep(draw.uniform(0, 0.01))
        number = draw.choice((signal.SIGTERM, signal.SIGINT))
        for pid in draw.choice((pids[:1], pids[1:], pids)):
            os.kill(pid, number)
        codes = lab.ended(pids, seconds=30)
        trained = last_step(run)
        if trained > before:
            assert codes == [ExitCode.PREEMPTED] * 2, lab.logs()
        else:  # before the first step there is nothing to save
            assert {ExitCode.PREEMPTED, -number} & set(codes), lab.logs()
        assert newest(run) == trained
        assert starts(lab, run)[-1] == before
    assert stopped_in_save >= 1
    stopped_in_evaluation = [
        r["step"] for r in records(run) if r["step"] % 15 == 0 and r["val_loss"] is None
    ]
    assert stopped_in_evaluation
    lab.train(run, 2)
    whole = lab.config(run_name="uninterrupted", **{**settings, "eval__interval": 0})
    lab.train(whole, 2)
    assert_bitwise_equal(whole, run)


def test_a_rank_that_is_killed_while_the_ranks_meet_is_missed_in_bounded_time(lab: Lab) -> None:
    run = lab.config(**SMALL, train__max_steps=1000)
    for victim in range(2):
        pids = lab.fork_ranks(run, 2)
        os.kill(pids[victim], signal.SIGKILL)
        codes = lab.ended(pids, seconds=30)
        assert codes[1 - victim] == ExitCode.RETRYABLE


def test_a_rank_that_stands_still_is_missed_in_bounded_time(lab: Lab) -> None:
    run = lab.config(**SMALL, train__max_steps=100_000)
    pids = lab.fork_ranks(run, 2)
    soon("a step", lambda: last_step(run) >= 5, lab)
    os.kill(pids[1], signal.SIGSTOP)
    assert lab.ended(pids[:1], seconds=30) == [ExitCode.RETRYABLE]
    os.kill(pids[1], signal.SIGCONT)
    assert lab.ended(pids[1:], seconds=30) == [ExitCode.RETRYABLE]
