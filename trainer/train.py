"""The training loop of one rank, from the dataset to the last checkpoint."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
from torch.nn.parallel import DistributedDataParallel

from trainer import checkpoint
from trainer.batch_plan import plan_batch
from trainer.config import RunConfig, dump_config
from trainer.dataset import Dataset, gather, open_dataset
from trainer.device import Compute
from trainer.distributed import World
from trainer.durable import write_text
from trainer.evaluate import Validation, evaluate
from trainer.exit_codes import FatalError
from trainer.gpt2_weights import load_gpt2_weights
from trainer.metrics import MetricsLog, Speedometer, StepMetrics, peak_flops
from trainer.model import GPT, load_optimizer_state, make_optimizer, optimizer_state_by_name
from trainer.run_identity import check_identity, identity, write_done_marker
from trainer.sample_order import SampleOrder
from trainer.schedule import learning_rate
from trainer.stop_request import StopRequest

CHECKPOINTS_DIR = "checkpoints"


@dataclasses.dataclass(frozen=True)
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

    def say(text: str) -> None:
        if world.is_main:
            print(text, flush=True)

    device, run_dir = compute.device, config.run_dir
    checkpoints = run_dir / CHECKPOINTS_DIR
    dataset = open_dataset(config.dataset_dir)
    order = SampleOrder(
        len(dataset.train),
        config.model.block_size,
        config.train.global_batch_size,
        config.seed,
    )
    plan = plan_batch(
        config.train.global_batch_size, config.train.micro_batch_size, world.size, world.rank
    )
    torch.manual_seed(config.seed)  # the same weights on every rank
    model = GPT(config.model, dataset.tokenizer.vocab_size).to(device)
    if config.train.initial_weights is not None:
        load_gpt2_weights(model, config.train.initial_weights)
    optimizer = make_optimizer(model, config.train)
    scaler = torch.amp.GradScaler(device.type, enabled=compute.dtype == torch.float16)

    for reason in compute.reasons:
        say(reason)
    say(plan.describe(config.model.block_size))
    say(
        f"model {model.parameter_count():,} parameters, data {len(dataset.train):,} training and "
        f"{len(dataset.val):,} validation tokens, {order.windows_per_epoch:,} windows per epoch"
    )

    if world.is_main:
        checkpoints.mkdir(parents=True, exist_ok=True)
        checkpoint.remove_leftovers(checkpoints)
    first_step = _resume(config, world, dataset, model, optimizer, scaler, say)
    if world.is_main:
        write_text(run_dir / "run.yaml", dump_config(config))
    metrics_log = MetricsLog(run_dir, first_step) if world.is_main else None

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
            starts = order.window_starts(update, indices or range(1))
            batch = gather(dataset.train, starts, config.model.block_size, device)
            if isinstance(stepped, DistributedDataParallel):
                # Must be set before the forward pass: DDP decides there whether to reduce.
                stepped.require_backward_grad_sync = position == last
            with autocast():
                loss = stepped(*batch)
            # DDP averages over ranks: times world.size makes that a sum; all tokens weigh the same.
            scaler.scale(loss * (weight * world.size / tokens_per_update)).backward()
            loss_sum += weight * loss.detach()
        return loss_sum

    tokens_per_update = config.train.global_batch_size * config.model.block_size
    stepped = cast(torch.nn.Module, torch.compile(model) if compute.compile else model)
    if world.size > 1:
        device_ids = [device] if device.type == "cuda" else None
        stepped = DistributedDataParallel(stepped, device_ids, gradient_as_bucket_view=True)
        # DDP reorders its buckets after the first pass, which changes the order of additions in
        # the all-reduce. One pass that is thrown away puts fresh and resumed runs on the same path.
        backward_of_global_batch(first_step)
        optimizer.zero_grad(set_to_none=True)

    def save(step: int, loss: float, validation: Validation | None) -> None:
        failure: OSError | None = None
        if world.is_main:
            begin = time.monotonic()
            state = {
                "identity": identity(config),
                "data_sha256": dataset.fingerprint,
                "tokenizer": dataset.tokenizer.to_json(),
                "config": config.to_mapping(),
                "scaler": scaler.state_dict(),
                "world_size": world.size,
                "tokens": step * tokens_per_update,
                "loss": loss,
                "val_loss": validation and validation.loss,
                "torch_version": str(torch.__version__),
            }
            tensors = {
                "model": model.state_dict(),
                "optimizer": optimizer_state_by_name(model, optimizer),
            }
            try:
                checkpoint.save(checkpoints, step, tensors, state, config.checkpoint.keep_last)
            except OSError as error:
                failure = error
            else:
                name = checkpoint.directory_of(checkpoints, step).name
                say(f"checkpoint {name} saved in {time.monotonic() - begin:.2f} s")
        if world.any(failure is not None):  # also keeps the others until the checkpoint is there
            raise FatalError(
                f"the checkpoint of step {step} could not be written: {failure or 'see rank 0'}"
            )

    peak = peak_flops(compute.device_name, compute.dtype)
    meter = Speedometer(tokens_per_update, model.flops_per_token(), peak, world.size)
    validation: Validation | None = None
    stopping, step = False, first_step
    stop.install()
    meter.start(step)
    while step < config.train.max_steps and not stopping:
        lr = learning_rate(step, config.train)
        for group in optimizer.param_groups:
            group["lr"] = lr
        loss_sum = backward_of_global_batch(step)
        scaler.unscale_(optimizer)
        limit = config.train.grad_clip or math.inf
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        scaler.step(optimizer)
        scaler.update()
        step += 1
        if step == first_step + 1:
            on_first_step()

        stopping = world.any(stop.requested)
        is_last = step == config.train.max_steps
        evaluates = not stopping and (is_last or _due(step, config.eval.interval))
        saves = stopping or is_last or _due(step, config.checkpoint.interval)
        logs = is_last or step == 1 or evaluates or _due(step, config.log.interval)
        if logs or saves:
            (loss,) = (total / tokens_per_update for total in world.sum([float(loss_sum)]))
            speed = meter.stop(step)
            # The float16 scaler skips updates whose gradients overflow; otherwise it is the end.
            norm = float(grad_norm) if math.isfinite(grad_norm) else None
            if not math.isfinite(loss) or (norm is None and not scaler.is_enabled()):
                raise FatalError(
                    f"step {step} diverged: loss {loss}, gradient norm {float(grad_norm)}; "
                    "the newest checkpoint is from before"
                )
            validation = None
            if evaluates:
                validation = evaluate(
                    model,
                    dataset,
                    config.eval.batch_size,
                    world,
                    device,
                    autocast,
                    should_stop=lambda: world.any(stop.requested),
                )
                stopping = validation is None
            if metrics_log is not None and (logs or stopping):
                metrics = StepMetrics(
                    step=step,
                    loss=loss,
                    val_loss=validation and validation.loss,
                    val_bits_per_byte=validation and validation.bits_per_byte,
                    lr=lr,
                    grad_norm=norm,
                    tokens_per_second=speed.tokens_per_second,
                    step_seconds=speed.step_seconds,
                    mfu=speed.mfu,
                    tokens=step * tokens_per_update,
                    world_size=world.size,
                    unix_time=time.time(),
                )
                metrics_log.record(metrics)
                say(metrics.line(config.train.max_steps))
            if saves or stopping:
                save(step, loss, validation)
            meter.start(step)

    finished = step >= config.train.max_steps
    if metrics_log is not None:
        metrics_log.close()
        if finished:
            state = checkpoint.load_state(checkpoints, step)
            write_done_marker(config, {key: state[key] for key in ("step", "loss", "val_loss")})
    world.barrier()
    return TrainingEnd(step, finished)


def _resume(
    config: RunConfig,
    world: World,
    dataset: Dataset,
    model: GPT,
    optimizer: torch.optim.AdamW,
    scaler: torch.amp.GradScaler,
    say: Callable[[str], None],
) -> int:
    """Load the newest checkpoint that verifies; returns the number of updates already done."""
    root, device = config.run_dir / CHECKPOINTS_DIR, model.wte.weight.device
    # Rank 0 reads every byte to verify; the others take its word for the step.
    found = checkpoint.latest_verified(root, say) if world.is_main else None
    step = world.broadcast(-1 if found is None else found)
    if step < 0:
        say("no checkpoint: starting at step 0")
        return 0
    state = checkpoint.load_state(root, step)
    check_identity(state["identity"], config, checkpoint.directory_of(root, step).name)
    if state["data_sha256"] != dataset.fingerprint:
        raise FatalError(
            f"dataset {config.dataset.name} has changed since run {config.run_name!r} was started "
            "(other training tokens); put it back or choose another run_name"
        )
    model.load_state_dict(checkpoint.load_tensors(root, step, "model", device))
    saved_optimizer = checkpoint.load_tensors(root, step, "optimizer", device)
    load_optimizer_state(model, optimizer, saved_optimizer)
    if state["scaler"]:
        scaler.load_state_dict(state["scaler"])
    say(f"continuing after step {step} from {checkpoint.directory_of(root, step).name}")
    if state["world_size"] != world.size:
        say(
            f"{state['world_size']} rank(s) saved it, {world.size} continue: the same samples in "
            "the same order; sums round differently, and dropout draws other masks"
        )
    return step


def _due(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0


def _dropout_seed(seed: int, update: int, rank: int) -> int:
    """Dropout is keyed like the sample order, so no generator state has to be saved."""
    digest = hashlib.blake2b(f"{seed}/{update}/{rank}".encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "big")
