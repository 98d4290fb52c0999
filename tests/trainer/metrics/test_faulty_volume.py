"""The metrics of a run whose volume fails for a while. It is a file system of the tests (FUSE)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from tests.trainer.faulty.file_system import FaultyFileSystem, Request
from tests.trainer.lab import Lab, NoSignals, records
from trainer.metrics.log import MetricsLog
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.train import TrainingEnd, train

STEPS = range(1, 13)
FAILING_STEPS = range(4, 8)


@pytest.fixture
def volume(lab: Lab) -> Iterator[FaultyFileSystem]:
    """Yield a faulty file system for the folders of runs. It works until the test says
    otherwise.
    """
    for name in ("folder", "runs"):
        (lab.root / name).mkdir()
    made = FaultyFileSystem(lab.root / "folder", lab.root / "runs")
    try:
        yield made
    finally:
        made.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOSPC])
def test_volume_that_fails_for_a_while_costs_no_step(
    lab: Lab,
    volume: FaultyFileSystem,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    """A run goes on while its metrics cannot be written, and writes all of them once the volume
    works again. A restart would repeat all steps since the newest checkpoint.
    """
    run = lab.config(train__max_steps=STEPS[-1])
    step = 0

    def fail(request: Request) -> None:
        is_of_metrics = "metrics.jsonl" in request.path or "tensorboard" in request.path
        acts = ("write", "open", "create")
        if step in FAILING_STEPS and is_of_metrics and request.act in acts:
            raise OSError(number, os.strerror(number))

    record = MetricsLog.record

    def noted(log: MetricsLog, metrics: object) -> None:
        nonlocal step
        step += 1
        record(log, metrics)  # pyright: ignore[reportArgumentType]
        with suppress(OSError):  # the failing volume refuses the last part of `sync`
            log.sync()  # TensorBoard's thread writes now, and not when it comes to it

    monkeypatch.setattr(MetricsLog, "record", noted)
    # TensorBoard reads the files of one second in the order of their numbers as texts, which in a
    # rank begin with 0. Here earlier tests may have counted up to 9, and 10 would come before it.
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
    volume.hook = fail
    end = train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)
    assert end == TrainingEnd(STEPS[-1], finished=True)
    assert [each["step"] for each in records(run)] == list(STEPS)
    curves = EventAccumulator(str(run.run_dir / "tensorboard")).Reload()
    shown = [event.step for event in curves.Scalars("loss")]
    assert {*STEPS} - {*FAILING_STEPS} <= {*shown}
    said = capsys.readouterr().out
    assert said.count("metrics.jsonl cannot be written") == 1
    assert said.count("tensorboard cannot be written") == 1
