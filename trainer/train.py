"""The training loop of one rank, from the dataset to the last checkpoint."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from trainer.checkpoint.durable import write_text
from trainer.checkpoint.resume import find_checkpoint
from trainer.checkpoint.run_lock import RunLock
from trainer.checkpoint.run_state import RunState
from trainer.checkpoint.second_chance import raise_diverged
from trainer.config import RunConfig, dump_config
from trainer.data.batch_plan import plan_batch
from trainer.data.dataset import open_dataset
from trainer.data.gather import Batch, gather, to_device
from trainer.data.prefetch import Prefetch
from trainer.data.sample_order import SampleOrder
from trainer.evaluate import Validation, evaluate
from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.events.reports import Reports
from trainer.launch.stop_request import StopRequest
from trainer.metrics.console import Console
from trainer.metrics.finite import FiniteCheck
from trainer.metrics.log import MetricsLog, StepMetrics
from trainer.metrics.peak_flops import peak_flops
from trainer.metrics.speed import Speedometer, peak_memory_bytes
from trainer.model.gpt import GPT, make_optimizer
from trainer.model.gpt2_weights import load_gpt2_weights
from trainer.model.initial_weights import initialise
from trainer.parallel.device import Compute
from trainer.parallel.world import World
from trainer.parallel.wrap import Parallel
from trainer.schedule import learning_rate
from trainer.watch.beat import BEAT, Phase
from trainer.watch.laps import Part
from trainer.watch.slow_rank import SlowRankWatch


@dataclass(frozen=True)
class TrainingEnd:
    """How far training came; `finished` is false when it was asked to stop before the end."""

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

    Continues from the newest checkpoint that verifies. `stop` is installed once there is
    something to save. `events`: where it is noted when what happens.

    Raises:
        FatalError: a restart cannot mend it.
        RetryableError: a restart may mend it.
    """
    lock = RunLock(config.run_dir)
    try:
        events = events or EventLog(None, print)
        return _train(config, world, compute, stop, on_first_step, lock, events)
    finally:
        lock.release()


def _train(
    config: RunConfig,
    world: World,
    compute: Compute,
    stop: StopRequest,
    on_first_step: Callable[[], None],
    lock: RunLock,
    events: EventLog,
) -> TrainingEnd:
    console, reports = Console(speaks=world.is_main), Reports(events)
    device, max_steps = compute.device, config.train.max_steps

    # --- data, model, optimizer -------------------------------------------------------------
    dataset = open_dataset(config.dataset_dir)
    events.write(Name.DATA_OPENED)
    block_size, global_batch_size = config.model.block_size, config.train.global_batch_size
    order = SampleOrder(len(dataset.train), block_size, global_batch_size, config.seed)
    plan = plan_batch(global_batch_size, config.train.micro_batch_size, world.size, world.rank)
    tokens_per_update = global_batch_size * block_size
    with torch.device("meta"):  # no rank ever has memory for more than its own part
        model = GPT(config.model, dataset.tokenizer.vocab_size)
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    found = find_checkpoint(config, world, shapes, lock, console.say)
    parameters, flops_per_token = model.parameter_count(), model.flops_per_token()

    def fill() -> None:
        if found.step is None and config.train.initial_weights is not None:
            load_gpt2_weights(model, config.train.initial_weights)
        elif found.step is None:
            initialise(model, config.model, config.seed)

    parallel = Parallel(model, config.train, compute, world, fill)
    optimizer = make_optimizer(model, config.train)
    scaler = torch.amp.GradScaler(device.type, enabled=compute.dtype == torch.float16)

    for line in (
        *compute.reasons,
        parallel.describe(),
        plan.describe(block_size),
        config.checkpoint.describe(),
        f"model {parameters:,} parameters, data {len(dataset.train):,} training and "
        f"{len(dataset.val):,} validation tokens, {order.windows_per_epoch:,} windows per epoch",
    ):
        console.say(line)

    # --- where the run stands ---------------------------------------------------------------
    state = RunState(config, world, compute, dataset, model, optimizer, scaler, lock, console.say)
    first_step = state.restore(found)
    events.write(Name.RESTORED, step=first_step, tokens_per_step=tokens_per_update)
    metrics_log = None
    if world.is_main:
        write_text(config.run_dir / "run.yaml", dump_config(config))
        metrics_log = MetricsLog(config.run_dir, first_step, console.say)
    peak = peak_flops(compute.device_name, compute.dtype)
    meter = Speedometer(tokens_per_update, flops_per_token, peak, world.size, device)
    finite = FiniteCheck(device, skips_updates=scaler.is_enabled())
    watch = SlowRankWatch(world, device, lambda: state.own_save_seconds, events, console.say)

    # --- parts of the loop ------------------------------------------------------------------
    def autocast() -> AbstractContextManager[object]:
        enabled = compute.dtype != torch.float32
        return torch.autocast(device.type, compute.dtype) if enabled else nullcontext()

    def micro_batches(update: int) -> list[Batch]:
        """This rank's part of the global batch, on the CPU; called by the thread of `prefetch`."""
        return [
            gather(dataset.train, order.window_starts(update, part), block_size, rows=plan.rows)
            for part in plan.micro_batches
        ]

    prefetch = Prefetch(micro_batches, end=max_steps)

    def backward_of_global_batch(update: int) -> torch.Tensor:
        """Gradients of the mean loss over the global batch; returns this rank's loss sum."""
        torch.manual_seed(_dropout_seed(config.seed, update, world.rank))
        loss_sum = torch.zeros((), device=device)
        optimizer.zero_grad(set_to_none=True)
        last = len(plan.micro_batches) - 1
        with meter.fetching():
            batches = prefetch.take(update)
        watch.lap(Part.DATA)
        BEAT.phase(Phase.PASSES)
        for position, batch in enumerate(batches):
            with autocast():
                loss = parallel.loss(*to_device(batch, device), reduces=position == last)
            # The gradients are summed over the ranks, so that all tokens weigh the same.
            scaler.scale(parallel.scale_for_grad_sum(loss) / tokens_per_update).backward()
            loss_sum += loss.detach()
        watch.lap(Part.WAIT)  # with fsdp, which ends in a collective, next to nothing
        return loss_sum

    def entering_collective() -> None:
        watch.lap(Part.COMPUTE)
        BEAT.enter()

    def left_collective() -> None:
        watch.lap(Part.WAIT)
        BEAT.leave()

    def is_evaluated(step: int) -> bool:
        return step >= max_steps or _due(step, config.eval.interval)

    def validate(step: int) -> Validation | None:
        """The pass after `step` updates; None where a rank was asked to stop before its end."""
        BEAT.phase(Phase.EVALUATION)
        validation = evaluate(
            model,
            dataset,
            config.eval.batch_size,
            world,
            device,
            autocast,
            should_stop=lambda: world.any(stop.requested),
            forward_is_collective=parallel.forward_is_collective,
            compiled=parallel.evaluated,
            max_tokens=config.eval.max_tokens if step < max_steps else None,
        )
        parallel.free_gathered()
        return validation

    if parallel.needs_bucket_warmup:
        # DDP reorders its buckets after the first backward pass, and with them the additions of
        # its all-reduce. One pass that is thrown away gives fresh and resumed runs the same order.
        backward_of_global_batch(first_step)
    parallel.watch_collectives(entering_collective, left_collective)

    # --- the loop ---------------------------------------------------------------------------
    stopping, step, held_up_seconds, summary = False, first_step, 0.0, ""
    try:
        stop.install()
        if step > 0 and is_evaluated(step) and not state.validated:
            console.say(f"step {step}/{max_steps} was not evaluated to the end: that comes first")
            reports.held_up(Name.EVALUATING)
            validation = validate(step)
            stopping = validation is None
            if validation is not None:
                reports.held_up(Name.SAVING)
                if metrics_log is not None:
                    metrics_log.add_validation(step, validation.loss, validation.bits_per_byte)
                    metrics_log.flush()
                console.say(f"step {step}/{max_steps} val {validation.loss:.4f}")
                held_up_seconds += state.save(step, state.loss, validation, step >= max_steps)
        reports.resumed()
        meter.start(step)
        while step < max_steps and not stopping:
            # A write that is still under way may bound how many steps a kill can cost.
            if waited := state.before_update(step):
                held_up_seconds += waited
                reports.waited_for_save(waited)
                meter.leave_out(waited)

            watch.begin_step()
            BEAT.at(Phase.DATA, step)

            # One update: gradients over the global batch, then the optimizer's step.
            lr = learning_rate(step, config.train)
            for group in optimizer.param_groups:
                group["lr"] = lr
            loss_sum = backward_of_global_batch(step)
            BEAT.phase(Phase.UPDATE)
            scaler.unscale_(optimizer)
            limit = config.train.grad_clip or math.inf
            grad_norm = parallel.gather_full(
                torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
            )
            waited = state.before_weights_change()  # a save may still copy them
            if waited:
                watch.lap(Part.SAVE)
            held_up_seconds += waited
            reports.waited_for_save(waited)
            scaler.step(optimizer)
            scaler.update()
            finite.note(grad_norm)
            step += 1
            meter.step_done(step)
            watch.lap(Part.COMPUTE)
            if step == first_step + 1:
                world.bound_waits(config.train.timeout_seconds)
                on_first_step()
                reports.first_step(step)

            # What the ranks do after it, all alike.
            BEAT.phase(Phase.AGREEMENT)
            stopping, exchanged = state.after_update(stop.requested, watch.to_exchange())
            watch.step_done(exchanged)
            reports.saved(state.safe_step)
            is_last = step == max_steps
            evaluates = not stopping and is_evaluated(step)
            saves = stopping or is_last or _due(step, config.checkpoint.steps_between_saves)
            logs = is_last or step == 1 or evaluates or _due(step, config.log.interval)
            if not logs and not saves:
                console.progress(step, max_steps, summary)
                continue

            BEAT.phase(Phase.REPORT)
            (loss,) = (total / tokens_per_update for total in world.sum([float(loss_sum)]))
            speed = meter.stop(step)
            if (bad_step := finite.first_bad_step(step, loss)) is not None:
                raise_diverged(config.run_dir, world, bad_step, loss, float(grad_norm))
            data_seconds, peak_memory = world.max(
                [speed.data_seconds, float(peak_memory_bytes(device))]
            )
            reports.stepped(step, speed.step_seconds, speed.step_seconds_longest, data_seconds)
            validation = None
            if evaluates:
                reports.held_up(Name.EVALUATING)
                validation = validate(step)
                stopping = validation is None
                (peak_memory,) = world.max([float(peak_memory_bytes(device))])
            if metrics_log is not None and (logs or stopping):
                metrics = StepMetrics.of(
                    step=step,
                    loss=loss,
                    val_loss=validation and validation.loss,
                    val_bits_per_byte=validation and validation.bits_per_byte,
                    lr=lr,
                    grad_norm=float(grad_norm),
                    skipped_updates=finite.skipped(),
                    speed=speed,
                    data_seconds=data_seconds,
                    peak_memory_bytes=int(peak_memory),
                    checkpoint_seconds=held_up_seconds or None,
                    eta_seconds=meter.seconds_left(step, max_steps),
                    **watch.for_record,
                    tokens=step * tokens_per_update,
                    world_size=world.size,
                )
                metrics_log.record(metrics)
                held_up_seconds = 0.0
                if not console.has_bar or validation is not None:
                    console.say(f"{metrics.line(max_steps)}{watch.note}")
                summary = metrics.summary()
                console.progress(step, max_steps, summary)
            if saves or stopping or state.is_best(validation):
                reports.held_up(Name.SAVING)
                if metrics_log is not None:
                    metrics_log.flush()
                held_up_seconds += state.save(step, loss, validation, is_last or stopping)
            reports.resumed()
            meter.start(step)
        reports.held_up(Name.SAVING)
        state.wait()
        reports.saved(state.safe_step)
    finally:
        prefetch.close()
        state.drain()
        if metrics_log is not None:
            metrics_log.close()
        console.end()

    finished = step >= max_steps and state.validated
    if world.is_main and finished:
        state.finish(step)
        events.write(Name.FINISHED, step=step)
    else:
        events.write(Name.LEFT_LOOP)
    world.barrier()
    return TrainingEnd(step, finished)


def _due(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0


def _dropout_seed(seed: int, update: int, rank: int) -> int:
    """Dropout is keyed like the sample order, so no generator state has to be saved."""
    digest = hashlib.blake2b(f"{seed}/{update}/{rank}".encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "big")
