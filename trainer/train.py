"""The training loop of one rank, from the dataset to the last checkpoint."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from trainer.batch_plan import plan_batch
from trainer.config import RunConfig, dump_config
from trainer.console import Console
from trainer.dataset import gather, open_dataset
from trainer.device import Compute
from trainer.distributed import World
from trainer.durable import write_text
from trainer.evaluate import Validation, evaluate
from trainer.exit_codes import FatalError
from trainer.gpt2_weights import load_gpt2_weights
from trainer.metrics import MetricsLog, StepMetrics
from trainer.model import GPT, make_optimizer
from trainer.parallel import Parallel
from trainer.peak_flops import peak_flops
from trainer.run_state import CHECKPOINTS_DIR as CHECKPOINTS_DIR
from trainer.run_state import RunState
from trainer.sample_order import SampleOrder
from trainer.schedule import learning_rate
from trainer.speed import Speedometer, peak_memory_bytes
from trainer.stop_request import StopRequest


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
) -> TrainingEnd:
    """Train until `train.max_steps`, or until any rank is asked to stop.

    Continues from the newest checkpoint that verifies. `stop` is installed once there is
    something to save. Raises FatalError for what a restart cannot mend.
    """
    console = Console(speaks=world.is_main)
    device, max_steps = compute.device, config.train.max_steps

    # --- data, model, optimiser -------------------------------------------------------------
    dataset = open_dataset(config.dataset_dir)
    order = SampleOrder(
        len(dataset.train), config.model.block_size, config.train.global_batch_size, config.seed
    )
    plan = plan_batch(
        config.train.global_batch_size, config.train.micro_batch_size, world.size, world.rank
    )
    tokens_per_update = config.train.global_batch_size * config.model.block_size
    torch.manual_seed(config.seed)  # the same weights on every rank
    model = GPT(config.model, dataset.tokenizer.vocab_size).to(device)
    if config.train.initial_weights is not None:
        load_gpt2_weights(model, config.train.initial_weights)
    parameters, flops_per_token = model.parameter_count(), model.flops_per_token()
    parallel = Parallel(model, config.train, compute, world)
    optimizer = make_optimizer(model, config.train)
    scaler = torch.amp.GradScaler(device.type, enabled=compute.dtype == torch.float16)

    for reason in compute.reasons:
        console.say(reason)
    console.say(parallel.describe())
    console.say(plan.describe(config.model.block_size))
    console.say(config.checkpoint.describe())
    console.say(
        f"model {parameters:,} parameters, data {len(dataset.train):,} training and "
        f"{len(dataset.val):,} validation tokens, {order.windows_per_epoch:,} windows per epoch"
    )

    # --- where the run stands ---------------------------------------------------------------
    state = RunState(config, world, dataset, model, parallel, optimizer, scaler, console.say)
    first_step = state.resume()
    metrics_log = None
    if world.is_main:
        write_text(config.run_dir / "run.yaml", dump_config(config))
        metrics_log = MetricsLog(config.run_dir, first_step)
    meter = Speedometer(
        tokens_per_update,
        flops_per_token,
        peak_flops(compute.device_name, compute.dtype),
        world.size,
        device,
    )

    # --- one update -------------------------------------------------------------------------
    def autocast() -> AbstractContextManager[object]:
        enabled = compute.dtype != torch.float32
        return torch.autocast(device.type, compute.dtype) if enabled else nullcontext()

    def backward_of_global_batch(update: int) -> torch.Tensor:
        """Gradients of the mean loss over the global batch; returns this rank's loss sum."""
        torch.manual_seed(_dropout_seed(config.seed, update, world.rank))
        loss_sum = torch.zeros((), device=device)
        optimizer.zero_grad(set_to_none=True)
        last = len(plan.micro_batches) - 1
        for position, indices in enumerate(plan.micro_batches):
            # A rank without a sequence for this micro-step runs some sequence with weight 0.
            weight = 1.0 if len(indices) else 0.0
            with meter.fetching():
                starts = order.window_starts(update, indices or range(1))
                batch = gather(dataset.train, starts, config.model.block_size, device)
            with autocast():
                loss = parallel.loss(*batch, reduces=position == last)
            # The gradients are summed over the ranks, so that all tokens weigh the same.
            scaler.scale(parallel.for_sum(loss) * (weight / tokens_per_update)).backward()
            loss_sum += weight * loss.detach()
        return loss_sum

    def update_weights(lr: float) -> torch.Tensor:
        """One optimiser step; returns the norm of the gradients before clipping."""
        for group in optimizer.param_groups:
            group["lr"] = lr
        scaler.unscale_(optimizer)
        limit = config.train.grad_clip or math.inf
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        scaler.step(optimizer)
        scaler.update()
        return parallel.whole(grad_norm)

    def is_evaluated(step: int) -> bool:
        return step >= max_steps or _due(step, config.eval.interval)

    def validate() -> Validation | None:
        """The exact pass; None where a rank was asked to stop before its end."""
        validation = evaluate(
            model,
            dataset,
            config.eval.batch_size,
            world,
            device,
            autocast,
            should_stop=lambda: world.any(stop.requested),
            in_lockstep=parallel.in_lockstep,
        )
        parallel.free_gathered()
        return validation

    if parallel.changes_order_after_first_pass:
        # One pass that is thrown away puts fresh and resumed runs on the same path.
        backward_of_global_batch(first_step)

    # --- the loop ---------------------------------------------------------------------------
    stopping, step, held_up_seconds, summary = False, first_step, 0.0, ""
    try:
        stop.install()
        if step > 0 and is_evaluated(step) and not state.validated:
            console.say(f"step {step}/{max_steps} was not evaluated to the end: that comes first")
            validation = validate()
            stopping = validation is None
            if validation is not None:
                if metrics_log is not None:
                    metrics_log.add_validation(step, validation.loss, validation.bits_per_byte)
                    metrics_log.flush()
                console.say(f"step {step}/{max_steps} val {validation.loss:.4f}")
                held_up_seconds += state.save(step, state.loss, validation)
        meter.start(step)
        while step < max_steps and not stopping:
            if waited := state.before_update(step):
                held_up_seconds += waited
                meter.leave_out(waited)
            lr = learning_rate(step, config.train)
            loss_sum = backward_of_global_batch(step)
            held_up_seconds += state.before_weights_change()
            grad_norm = update_weights(lr)
            step += 1
            meter.step_done(step)
            if step == first_step + 1:
                on_first_step()

            stops, failures = world.sum([float(stop.requested), float(state.save_failed)])
            if failures:
                state.raise_failure()
            stopping = stops > 0
            is_last = step == max_steps
            evaluates = not stopping and is_evaluated(step)
            saves = stopping or is_last or _due(step, config.checkpoint.every)
            logs = is_last or step == 1 or evaluates or _due(step, config.log.interval)
            if not logs and not saves:
                console.progress(step, max_steps, summary)
                continue

            (loss,) = (total / tokens_per_update for total in world.sum([float(loss_sum)]))
            speed = meter.stop(step)
            # float16's scaler skips updates whose gradients overflow; otherwise it is the end.
            norm = float(grad_norm) if math.isfinite(grad_norm) else None
            if not math.isfinite(loss) or (norm is None and not scaler.is_enabled()):
                raise FatalError(
                    f"step {step} diverged: loss {loss}, gradient norm {float(grad_norm)}; "
                    "the newest checkpoint is from before"
                )
            validation = None
            if evaluates:
                validation = validate()
                stopping = validation is None
            data_seconds, peak_memory = world.max(
                [speed.data_seconds, float(peak_memory_bytes(device))]
            )
            if metrics_log is not None and (logs or stopping):
                metrics = StepMetrics(
                    step=step,
                    loss=loss,
                    val_loss=validation and validation.loss,
                    val_bits_per_byte=validation and validation.bits_per_byte,
                    lr=lr,
                    grad_norm=norm,
                    tokens_per_second=speed.tokens_per_second,
                    tokens_per_second_per_rank=speed.tokens_per_second / world.size,
                    step_seconds=speed.step_seconds,
                    step_seconds_p50=speed.step_seconds_p50,
                    step_seconds_p95=speed.step_seconds_p95,
                    mfu=speed.mfu,
                    data_wait_share=data_seconds / speed.step_seconds,
                    peak_memory_bytes=int(peak_memory),
                    checkpoint_seconds=held_up_seconds or None,
                    eta_seconds=meter.seconds_left(step, max_steps),
                    tokens=step * tokens_per_update,
                    world_size=world.size,
                    unix_time=time.time(),
                )
                metrics_log.record(metrics)
                held_up_seconds = 0.0
                if not console.has_bar or validation is not None:
                    console.say(metrics.line(max_steps))
                summary = metrics.summary()
                console.progress(step, max_steps, summary)
            if saves or stopping or state.is_best(validation):
                if metrics_log is not None:
                    metrics_log.flush()
                held_up_seconds += state.save(step, loss, validation)
            meter.start(step)
        state.wait()
    finally:
        state.let_write_end()
        console.end()

    finished = step >= max_steps and state.validated
    if metrics_log is not None:
        metrics_log.close()
        if finished:
            state.finish(step)
    world.barrier()
    return TrainingEnd(step, finished)


def _due(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0


def _dropout_seed(seed: int, update: int, rank: int) -> int:
    """Dropout is keyed like the sample order, so no generator state has to be saved."""
    digest = hashlib.blake2b(f"{seed}/{update}/{rank}".encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "big")
