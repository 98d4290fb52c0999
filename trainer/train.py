"""The training loop of one rank.

`_loop` is the whole loop. The functions that it calls follow below it, in the order of the calls.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainer.checkpoint.run_lock import RunLock
from trainer.checkpoint.second_chance import raise_diverged
from trainer.config import RunConfig
from trainer.evaluate import Validation, evaluate
from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.launch.stop_request import StopRequest
from trainer.metrics.finite import finite_or_none
from trainer.metrics.log import StepMetrics
from trainer.metrics.speed import Speed, peak_memory_bytes
from trainer.parallel.device import Compute
from trainer.parallel.world import World
from trainer.set_up import Run, set_up
from trainer.update import Update, update_weights, wait_for_checkpoint, warm_up
from trainer.watch.beat import BEAT, Phase


@dataclass(frozen=True)
class TrainingEnd:
    """How far training came. `finished` is false if a request to stop ended it early."""

    step: int
    finished: bool


def train(
    config: RunConfig,
    world: World,
    compute: Compute,
    stop: StopRequest,
    on_first_step: Callable[[], None],
    events: EventLog | None = None,
) -> TrainingEnd:
    """Train until `train.max_steps`, or until any rank is asked to stop.

    Training continues from the newest checkpoint that verifies. The signal handlers of `stop` are
    installed once there is something to save. `events` is the log of events, with their times.

    Raises:
        FatalError: Training failed, and a restart would fail the same way.
        RetryableError: Training failed, and a restart may succeed.
    """
    lock = RunLock(config.run_dir)
    try:
        run = set_up(config, world, compute, stop, lock, events or EventLog(None, print))
        warm_up(run)
        return _loop(run, on_first_step)
    finally:
        lock.release()


def _loop(run: Run, on_first_step: Callable[[], None]) -> TrainingEnd:
    """Make update after update. After an update, log, evaluate and save if that is due.

    `step` counts the updates made so far. All ranks take the same branches in this loop.
    """
    config, state, max_steps = run.config, run.state, run.max_steps
    step, stopping = run.first_step, False
    try:
        run.stop.install()
        if step > 0 and _is_evaluated(config, step) and not state.validated:
            stopping = _evaluate_anew(run, step) is None
        run.reports.resumed()
        run.meter.start(step)
        while step < max_steps and not stopping:
            wait_for_checkpoint(run, step)
            update = update_weights(run, step)
            step += 1
            if step == run.first_step + 1:
                run.compiled.keep()
                run.world.bound_waits(config.train.timeout_seconds)
                on_first_step()
                run.reports.first_step(step)

            stopping = _agree(run)
            is_last = step == max_steps
            evaluates = not stopping and _is_evaluated(config, step)
            saves = stopping or is_last or _is_due(step, config.checkpoint.steps_between_saves)
            logs = is_last or step == 1 or evaluates or _is_due(step, config.log.interval)
            if not logs and not saves:
                run.console.progress(step, max_steps, run.summary)
                continue

            measured, validation = _measure(run, step, update), None
            if evaluates:
                run.reports.held_up(Name.EVALUATING)
                validation = _evaluate(run, step)
                stopping = validation is None
                (measured.peak_memory,) = run.world.max([_own_peak_memory(run)])
            if logs or stopping:
                _record(run, step, update, measured, validation)
            if saves or stopping or state.is_best(validation):
                _save(run, step, measured.loss, validation, is_last or stopping)
            run.reports.resumed()
            run.meter.start(step)
        run.reports.held_up(Name.SAVING)
        state.wait()
        run.reports.saved(state.safe_step)
    finally:
        _close(run)
    return _end(run, step)


# --- before the loop ----------------------------------------------------------------------------


def _evaluate_anew(run: Run, step: int) -> Validation | None:
    """Repeat the evaluation of the restored step, which a stop had cut off, and save its result.

    The result is None if a rank was asked to stop before the end of the evaluation.
    """
    run.console.say(f"step {step}/{run.max_steps} was not evaluated to the end: that comes first")
    run.reports.held_up(Name.EVALUATING)
    validation = _evaluate(run, step)
    if validation is not None:
        run.reports.held_up(Name.SAVING)
        if run.metrics_log is not None:
            loss, bits = validation.loss, validation.bits_per_byte
            run.metrics_log.add_validation(step, finite_or_none(loss), finite_or_none(bits))
        run.console.say(f"step {step}/{run.max_steps} val {validation.loss:.4f}")
        is_last = step >= run.max_steps
        run.held_up_seconds += run.state.save(step, run.state.loss, validation, is_last)
    return validation


# --- after an update ----------------------------------------------------------------------------


def _agree(run: Run) -> bool:
    """Return whether any rank has to stop.

    The ranks also exchange whether all have their next batches, and the times by which a slow rank
    is found.
    """
    BEAT.phase(Phase.AGREEMENT)
    is_late = run.world.size > 1 and not run.prefetch.wait(0)
    numbers = [float(is_late), *run.watch.to_exchange()]
    stopping, (late, *exchanged) = run.state.after_update(run.stop.requested, numbers)
    run.data_is_late = late > 0
    run.watch.step_done(exchanged)
    run.reports.saved(run.state.safe_step)
    return stopping


def _is_due(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0


def _is_evaluated(config: RunConfig, step: int) -> bool:
    return step >= config.train.max_steps or _is_due(step, config.eval.interval)


@dataclass
class _Measured:
    """The measurements of all ranks since the previous log record or save."""

    loss: float
    """The mean over the tokens of the newest global batch, in nats."""
    speed: Speed
    data_seconds: float
    """The time per step that the slowest rank waited for its batches."""
    peak_memory: float
    """The bytes of the rank that needs most memory."""


def _measure(run: Run, step: int, update: Update) -> _Measured:
    """Wait until the device has made the update, and combine the measurements of all ranks.

    Raises:
        FatalError, RetryableError: The loss or the gradients are not finite.
    """
    BEAT.phase(Phase.REPORT)
    (loss_sum,) = run.world.sum([float(update.loss_sum)])
    loss = loss_sum / run.config.tokens_per_update
    speed = run.meter.stop(step)
    if (bad_step := run.finite.first_bad_step(step, loss)) is not None:
        what = f"loss {loss}, gradient norm {float(update.grad_norm)}"
        raise_diverged(run.config.run_dir, run.world, bad_step, what, run.state.safe_step)
    data_seconds, peak_memory = run.world.max([speed.data_seconds, _own_peak_memory(run)])
    run.reports.stepped(step, speed.step_seconds, speed.step_seconds_longest, data_seconds)
    return _Measured(loss, speed, data_seconds, peak_memory)


def _own_peak_memory(run: Run) -> float:
    return float(peak_memory_bytes(run.compute.device))


def _evaluate(run: Run, step: int) -> Validation | None:
    """Measure the loss on the validation split.

    The result is None if a rank was asked to stop before the end. After the last step the loss is
    measured on the whole split. If the earlier evaluations took only a part of it, the same part is
    measured after the last step too, so that its loss can be compared with theirs.

    Raises:
        FatalError, RetryableError: The loss is not finite, and float16 is not the reason.
    """
    BEAT.phase(Phase.EVALUATION)
    begin = time.perf_counter()
    validation = _pass(run, run.config.eval.max_tokens)
    if validation is not None and validation.is_part and step >= run.max_steps:
        whole = _pass(run, None)
        validation = whole and replace(whole, compared_loss=validation.loss)
    if validation is not None and not validation.is_finite:
        what = f"validation loss {validation.loss}"
        if not run.scaler.is_enabled():
            raise_diverged(run.config.run_dir, run.world, step, what, run.state.safe_step)
        run.console.say(
            f"warning: step {step}: {what}: float16 has overflowed, and nothing is recorded; "
            "bfloat16 has the range of float32"
        )
    run.compiled.keep(run.world)
    run.parallel.free_gathered()
    if validation is not None:
        run.evaluation_seconds = time.perf_counter() - begin
    return validation


def _pass(run: Run, max_tokens: int | None) -> Validation | None:
    """Evaluate the whole validation split, or at most `max_tokens` tokens of it."""
    return evaluate(
        run.model,
        run.dataset,
        run.config.eval.batch_size,
        run.world,
        run.compute.device,
        run.compute.autocast,
        should_stop=lambda: run.world.any(run.stop.requested),
        forward_is_collective=run.parallel.forward_is_collective,
        compiled=run.parallel.evaluated,
        max_tokens=max_tokens,
    )


def _record(
    run: Run, step: int, update: Update, measured: _Measured, validation: Validation | None
) -> None:
    """Write a record of the metrics, and show a line or the progress bar. Only rank 0 does it."""
    if run.metrics_log is None:
        return
    BEAT.phase(Phase.SAVE)  # The output may be read slowly, so a long wait here is no hang.
    metrics = StepMetrics.of(
        step=step,
        loss=measured.loss,
        val_loss=validation and finite_or_none(validation.loss),
        val_bits_per_byte=validation and finite_or_none(validation.bits_per_byte),
        lr=update.learning_rate,
        grad_norm=float(update.grad_norm),
        skipped_updates=run.finite.skipped(),
        speed=measured.speed,
        data_seconds=measured.data_seconds,
        peak_memory_bytes=int(measured.peak_memory),
        checkpoint_seconds=run.held_up_seconds or None,
        eta_seconds=_seconds_left(run, step),
        **run.watch.for_record,
        tokens=step * run.config.tokens_per_update,
        world_size=run.world.size,
    )
    run.metrics_log.record(metrics)
    run.held_up_seconds = 0.0
    if not run.console.has_bar or validation is not None:
        run.console.say(f"{metrics.line(run.max_steps)}{run.watch.note}")
    run.summary = metrics.summary()
    run.console.progress(step, run.max_steps, run.summary)


def _seconds_left(run: Run, step: int) -> float | None:
    """Estimate the time until the last step, with evaluations and saves like the last ones."""
    evaluations = (run.config.eval.interval, run.evaluation_seconds)
    saves = (run.config.checkpoint.steps_between_saves, run.save_seconds)
    return run.meter.seconds_left(step, run.max_steps, (evaluations, saves))


def _save(run: Run, step: int, loss: float, validation: Validation | None, is_last: bool) -> None:
    BEAT.phase(Phase.SAVE)
    run.reports.held_up(Name.SAVING)
    run.save_seconds = run.state.save(step, loss, validation, is_last)
    run.held_up_seconds += run.save_seconds


# --- the end ------------------------------------------------------------------------------------


def _close(run: Run) -> None:
    """Close the files after the loop, whether it succeeded or failed, and wait for open writes."""
    run.prefetch.close()
    run.state.drain()
    if run.metrics_log is not None:
        run.metrics_log.close()
    run.console.end()


def _end(run: Run, step: int) -> TrainingEnd:
    """Mark the run as finished if it is. All ranks wait here until that is done."""
    finished = step >= run.max_steps and run.state.validated
    if run.world.is_main and finished:
        run.state.finish(step)
        run.events.write(Name.FINISHED, step=step)
    else:
        run.events.write(Name.LEFT_LOOP)
    run.world.barrier()
    return TrainingEnd(step, finished)
