"""Runs survive kill -9 and SIGTERM at random instants, with known losses of steps and of nothing
else.

The instants are drawn from fixed seeds, as a step to wait for and a delay after it. The ranks are
real processes, started by fork. Kills of entrypoints and of pods are in
`tests/trainer/launch/test_entrypoint.py`.
"""

from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.in_depth import in_depth
from tests.trainer.lab import (
    Lab,
    NoSignals,
    assert_bitwise_equal,
    checkpoints,
    free_port,
    last_step,
    newest,
    rank_environment,
    records,
    wait_for,
)
from trainer import train as training_loop
from trainer.checkpoint import retention, save, store
from trainer.checkpoint.background_save import BackgroundSave
from trainer.config import RunConfig
from trainer.launch.exit_codes import ExitCode, FatalError
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.set_up import Run
from trainer.train import train
from trainer.update import Update

INTERVAL = 10
ENDLESS = 100_000  # steps: no run ends before its test has done what it wants to
SMALL = {
    "model__n_layer": 1,
    "model__n_embd": 8,
    "model__dropout": 0.1,
    "train__global_batch_size": 5,
    "train__warmup_steps": 0,
    "train__decay_steps": 400,
    "checkpoint__interval": INTERVAL,
}
IMPATIENT = {**SMALL, "train__timeout_seconds": 5, "train__start_timeout_seconds": 5}
LIMIT_SECONDS = 120  # the longest wait for what has to happen
SLOW_DISK_SECONDS = 0.02  # per file: a save then takes longer than several steps


def soon(what: str, condition: Callable[[], bool], lab: Lab) -> None:
    """Wait until the condition holds, looking often."""
    wait_for(what, condition, LIMIT_SECONDS, lab, pause_seconds=0.002)


def starts(lab: Lab, run: RunConfig) -> list[int]:
    """Return the steps after which the starts so far have continued."""
    log = lab.rank_log(run, 0)
    text = log.read_text() if log.exists() else ""
    found = re.findall(r"no checkpoint: starting at step (0)|continuing after step (\d+)", text)
    return [int(none or step) for none, step in found]


def reported_saves(lab: Lab, run: RunConfig) -> list[int]:
    """Return the steps of the saves that rank 0 has reported."""
    text = lab.rank_log(run, 0).read_text()
    return [int(step) for step in re.findall(r"checkpoint step-(\d+) saved", text)]


def val_losses(run: RunConfig) -> list[tuple[int, float]]:
    """Return step and validation loss of each record that has one."""
    return [(r["step"], r["val_loss"]) for r in records(run) if r["val_loss"] is not None]


def is_saving(run: RunConfig) -> bool:
    """Return whether a save has begun that is not in place."""
    return any(checkpoints(run).glob(".tmp-step-*"))


def freeze_in_save(lab: Lab, run: RunConfig, writer: int, draw: random.Random) -> None:
    """Stop the process that writes, at a random instant of a save."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        assert time.monotonic() < deadline, "no save was met half done"
        soon("a save", lambda: is_saving(run), lab)
        time.sleep(draw.uniform(0, 2 * SLOW_DISK_SECONDS))
        os.kill(writer, signal.SIGSTOP)
        if is_saving(run):
            return
        os.kill(writer, signal.SIGCONT)


def finish_and_compare(lab: Lab, run: RunConfig, settings: Mapping[str, Any]) -> None:
    """Train a few steps more, and assert that the run is bit by bit an uninterrupted one."""
    last = {**settings, "train__max_steps": last_step(run) + 5}
    rest = lab.config(run_name=run.run_name, **last)
    lab.train(rest, 2)
    whole = lab.config(run_name="uninterrupted", **last)
    lab.train(whole, 2)
    assert_bitwise_equal(whole, rest)
    assert val_losses(rest) == val_losses(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "asynchronous", "parallel"),
    [in_depth(16, False, "ddp"), (20, True, "ddp"), in_depth(8, True, "fsdp")],
)
def test_after_44_kills_of_a_rank_the_runs_are_the_uninterrupted_ones(
    lab: Lab, kills: int, asynchronous: bool, parallel: str
) -> None:
    """After each kill of a rank, also in a save, at most the steps of one checkpoint interval are
    lost and the other rank ends, too. In the end the run is bit by bit the uninterrupted one.
    """
    draw = random.Random(f"kill -9 {parallel} {asynchronous}")
    settings = {
        **SMALL,
        "train__max_steps": ENDLESS,
        "train__parallel": parallel,
        "checkpoint__asynchronous": asynchronous,
    }
    run = lab.config(run_name="killed", **settings)
    killed_in_save = 0
    for kill in range(kills):
        before, known = newest(run), len(starts(lab, run))
        pids = lab.fork_ranks(run, 2, SLOW_DISK_SECONDS)
        soon("the start", lambda known=known: len(starts(lab, run)) > known, lab)
        victim = draw.randrange(2)
        if kill % 3 == 2:  # in a save: of the rank that writes, of the other, in turn
            victim = kill // 3 % 2
            freeze_in_save(lab, run, pids[0], draw)
        else:
            target = before + draw.randint(1, 24)
            soon("a step", lambda target=target: last_step(run) >= target, lab)
            time.sleep(draw.uniform(0, 0.01))
        os.kill(pids[victim], signal.SIGKILL)
        os.kill(pids[0], signal.SIGCONT)
        codes = lab.ended(pids, LIMIT_SECONDS)
        assert codes[victim] == -signal.SIGKILL
        assert codes[1 - victim] == ExitCode.RETRYABLE, lab.logs()  # it was told, and does not hang
        killed_in_save += is_saving(run)
        saved = reported_saves(lab, run)
        assert newest(run) >= max(saved, default=0)
        assert newest(run) >= last_step(run) - INTERVAL  # also in the middle of a save
        assert starts(lab, run)[-1] == before
    assert killed_in_save >= 1
    finish_and_compare(lab, run, settings)
    assert not is_saving(run)


@pytest.mark.slow
def test_20_requests_to_stop_lose_no_step(lab: Lab) -> None:
    """A request to stop, at a first step, in an evaluation, in a save or anywhere else, loses no
    step, and the run is bit by bit the uninterrupted one.
    """
    draw = random.Random("SIGTERM")
    settings = {
        **SMALL,
        "train__max_steps": ENDLESS,
        "eval__interval": 15,
        "eval__batch_size": 64,
    }
    run = lab.config(run_name="stopped", **settings)
    stopped_in_save = 0
    for attempt in range(20):
        before, known = newest(run), len(starts(lab, run))
        in_evaluation = attempt % 4 == 1
        pids = lab.fork_ranks(run, 2, SLOW_DISK_SECONDS, stop_in_evaluation=int(in_evaluation))
        soon("the start", lambda known=known: len(starts(lab, run)) > known, lab)
        match attempt % 4:
            case 0:  # at the first step
                time.sleep(draw.uniform(0, 0.05))
            case 1:  # the last rank signals itself
                pass
            case 2:  # in a save
                freeze_in_save(lab, run, pids[0], draw)
                stopped_in_save += 1
            case _:
                target = before + draw.randint(1, 20)
                soon("a step", lambda target=target: last_step(run) >= target, lab)
                time.sleep(draw.uniform(0, 0.01))
        number = draw.choice((signal.SIGTERM, signal.SIGINT))
        for pid in [] if in_evaluation else draw.choice((pids[:1], pids[1:], pids)):
            os.kill(pid, number)
        if not in_evaluation:
            os.kill(pids[0], signal.SIGCONT)  # it may be frozen, and gets the signal only now
        codes = lab.ended(pids, LIMIT_SECONDS)
        trained = last_step(run)
        if trained > before:
            assert codes == [ExitCode.PREEMPTED] * 2, lab.logs()
        else:  # before the first step there is nothing to save
            assert {ExitCode.PREEMPTED, -number} & set(codes), lab.logs()
        assert newest(run) == trained
        assert starts(lab, run)[-1] == before
    assert stopped_in_save == 5
    finish_and_compare(lab, run, settings)
    assert "was not evaluated to the end: that comes first" in lab.rank_log(run, 0).read_text()


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_an_evaluation_that_was_cut_off_is_repeated_before_the_run_goes_on_or_counts_as_done(
    lab: Lab, parallel: str
) -> None:
    settings = {
        **SMALL,
        "train__max_steps": 12,
        "train__parallel": parallel,
        "eval__interval": 5,
        "eval__batch_size": 32,
    }
    whole, run = (lab.config(run_name=name, **settings) for name in ("whole", "cut-off"))
    lab.train(whole, 2)
    # The first one, the same again when it is repeated, and the one after the last step, twice.
    for evaluation, step in ((1, 5), (1, 5), (3, 12), (1, 12)):
        pids = lab.fork_ranks(run, 2, stop_in_evaluation=evaluation)
        assert lab.ended(pids) == [ExitCode.PREEMPTED] * 2, lab.logs()
        assert newest(run) == last_step(run) == step
        assert records(run)[-1]["val_loss"] is None
        assert not (run.run_dir / "done.json").exists()
    lab.train(run, 2)
    assert [step for step, _ in val_losses(run)] == [5, 10, 12]
    assert val_losses(run) == val_losses(whole)
    assert_bitwise_equal(whole, run)
    ends = [json.loads((of.run_dir / "done.json").read_text()) for of in (run, whole)]
    assert ends[0] == ends[1]
    assert ends[0]["val_loss"] == retention.val_loss(checkpoints(run), 12)
    curves = EventAccumulator(str(run.run_dir / "tensorboard")).Reload()
    assert [event.step for event in curves.Scalars("val_loss")] == [5, 10, 12]


@pytest.mark.parametrize(
    ("interval", "asynchronous", "waits"),
    [
        (10, True, [10, 18, 26, 30]),  # saved after 8, 16, 24 and the last step
        (3, True, list(range(3, 31, 3))),
        (10, False, [10, 20, 30]),
    ],
)
def test_training_waits_for_a_write_before_a_kill_could_cost_more_than_the_interval(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    interval: int,
    asynchronous: bool,
    waits: list[int],
) -> None:
    """Training waits for a write in the background before a kill could cost more steps than the
    interval. In this test no write ends before training waits for it.
    """
    settings = {
        **SMALL,
        "train__max_steps": 30,
        "checkpoint__interval": interval,
        "checkpoint__asynchronous": asynchronous,
    }
    run = lab.config(**settings)
    is_waited_for, made, waited = threading.Event(), list[int](), list[int]()
    write, wait, update = store.commit, BackgroundSave.wait, training_loop.update_weights

    def write_once_waited_for(*values: Any) -> None:
        assert is_waited_for.wait(60)
        is_waited_for.clear()
        write(*values)

    def update_and_note(run: Run, step: int) -> Update:
        made.append(step + 1)
        return update(run, step)

    def wait_and_note(save: BackgroundSave, seconds: float | None = None) -> bool:
        # Training asks several times during one wait. Only the first may release the write: a later
        # one could come after the release was used and would release the next write too early.
        if seconds and made[-1] not in waited and not wait(save, 0):
            waited.append(made[-1])
            is_waited_for.set()
        return wait(save, seconds)

    monkeypatch.setattr(store, "commit", write_once_waited_for)
    monkeypatch.setattr(BackgroundSave, "wait", wait_and_note)
    monkeypatch.setattr(training_loop, "update_weights", update_and_note)
    train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)
    assert waited == waits


@pytest.mark.slow
def test_a_write_may_take_longer_than_a_collective(lab: Lab) -> None:
    """The write of a checkpoint may take longer than `train.timeout_seconds`."""
    run = lab.config(**{**IMPATIENT, "train__max_steps": 2})
    seconds_per_file = (run.train.timeout_seconds + 1) / 2  # each rank writes two or more
    assert lab.ended(lab.fork_ranks(run, 2, seconds_per_file)) == [ExitCode.DONE] * 2, lab.logs()


def test_verifying_may_take_longer_than_a_collective(lab: Lab) -> None:
    """The verification of a checkpoint may take longer than `train.timeout_seconds`. Otherwise
    ranks that wait for it in one collective would time out, at every start again.
    """
    lab.train(lab.config(**{**SMALL, "train__max_steps": 2}), 2)
    run = lab.config(**{**IMPATIENT, "train__max_steps": 3})
    seconds_per_file = (run.train.timeout_seconds + 1) / 3  # each rank reads three of the six
    pids = lab.fork_ranks(run, 2, slow_read_seconds=seconds_per_file)
    assert lab.ended(pids) == [ExitCode.DONE] * 2, lab.logs()


@pytest.mark.parametrize(
    ("passes", "damaged_file"), [(True, "optimizer-00000.bin"), (False, "state.json")]
)
def test_storage_that_fails_for_a_while_costs_no_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, passes: bool, damaged_file: str
) -> None:
    """A save that fails is given up, and the run goes on. The third failure in a row ends
    the run.
    """
    settings = {**SMALL, "train__max_steps": 40, "checkpoint__asynchronous": False}
    run = lab.config(**settings)
    write, failed = save.write_file, list[int]()

    def fail(path: Path, pieces: Any) -> dict[str, Any]:
        step = int(path.parent.name.split("-")[2])
        if path.name == damaged_file and (step <= 20 or not passes):
            failed.append(step)
            raise OSError(errno.EIO, "Input/output error")
        return write(path, pieces)

    monkeypatch.setattr(save, "write_file", fail)

    def train_here() -> None:
        train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)

    if passes:
        train_here()
        assert failed == [10, 20]
        assert newest(run) == 40
    else:
        with pytest.raises(FatalError, match=r"step 30 could not be written: .*Input/output error"):
            train_here()
        assert failed == [10, 20, 30]


def test_a_rank_that_dies_while_the_ranks_meet_or_stands_still_is_missed_in_bounded_time(
    lab: Lab,
) -> None:
    """Ranks end with a code that may be tried again when another rank dies while the ranks meet, or
    stands still. The cases run side by side, since most of their time is waiting.
    """
    meeting: list[list[int]] = []
    for victim in range(2):
        run = lab.config(run_name=f"without-{victim}", **IMPATIENT, train__max_steps=ENDLESS)
        meeting.append(lab.fork_ranks(run, 2))
        os.kill(meeting[victim][victim], signal.SIGKILL)
    run = lab.config(**IMPATIENT, train__max_steps=ENDLESS)
    pids = lab.fork_ranks(run, 2)
    soon("a step", lambda: last_step(run) >= 5, lab)
    os.kill(pids[1], signal.SIGSTOP)
    for victim, ranks in enumerate(meeting):
        assert lab.ended(ranks, LIMIT_SECONDS)[1 - victim] == ExitCode.RETRYABLE
    assert lab.ended(pids[:1], LIMIT_SECONDS) == [ExitCode.RETRYABLE]
    os.kill(pids[1], signal.SIGCONT)
    assert lab.ended(pids[1:], LIMIT_SECONDS) == [ExitCode.RETRYABLE]


def test_a_rank_may_start_later_than_a_collective_waits(lab: Lab) -> None:
    """A rank may come to the start later than `train.timeout_seconds`, because until the first step
    `train.start_timeout_seconds` holds. Otherwise nodes that import and compile at different speeds
    would time each other out.
    """
    run = lab.config(train__max_steps=6, train__timeout_seconds=5, train__start_timeout_seconds=90)
    port = free_port()
    pids = [lab.fork_rank(run, 0, rank_environment(0, 2, port))]
    time.sleep(run.train.timeout_seconds + 1)  # longer than a wait inside the loop may be
    pids.append(lab.fork_rank(run, 1, rank_environment(1, 2, port)))
    assert lab.ended(pids, 90) == [ExitCode.DONE] * 2, lab.logs()
