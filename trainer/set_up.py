"""Makes everything that one rank needs for training, from the settings of the run."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainer.checkpoint.durable import write_text
from trainer.checkpoint.resume import Found, Wanted, find_checkpoint
from trainer.checkpoint.run_lock import RunLock
from trainer.checkpoint.run_state import RunState
from trainer.compiled_code import CompiledCode
from trainer.config import RunConfig, dump_config
from trainer.data.batch_plan import BatchPlan, plan_batch
from trainer.data.dataset import Dataset, open_dataset
from trainer.data.gather import Batch, gather
from trainer.data.kept_tokenizer import keep_tokenizer
from trainer.data.prefetch import Prefetch
from trainer.data.sample_order import SampleOrder
from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.events.reports import Reports
from trainer.launch.stop_request import StopRequest
from trainer.metrics.console import Console
from trainer.metrics.finite import FiniteCheck
from trainer.metrics.log import MetricsLog
from trainer.metrics.peak_flops import peak_flops
from trainer.metrics.speed import Speedometer
from trainer.model.gpt import GPT, make_optimizer
from trainer.model.gpt2_weights import load_gpt2_weights
from trainer.model.initial_weights import initialise
from trainer.parallel.device import Compute
from trainer.parallel.world import World
from trainer.parallel.wrap import Parallel
from trainer.watch.slow_rank import SlowRankWatch


@dataclass
class Run:
    """Everything that one rank trains with. Training assigns new values only to the last five."""

    config: RunConfig
    world: World
    compute: Compute
    stop: StopRequest

    dataset: Dataset
    prefetch: Prefetch[list[Batch]]
    """This rank's part of each global batch, as micro-batches on the CPU."""
    model: GPT
    parallel: Parallel
    """The same model as the training passes call it. In these the ranks share the work."""
    compiled: CompiledCode
    optimizer: torch.optim.AdamW
    scaler: torch.amp.GradScaler
    """Scales the losses in float16, so that small gradients do not become 0. Otherwise it does
    nothing."""

    state: RunState
    """Restores and saves the checkpoints."""
    first_step: int
    """The number of updates in the checkpoint from which this start continues; 0 without one."""

    events: EventLog
    reports: Reports
    console: Console
    metrics_log: MetricsLog | None
    """Only rank 0 has one."""
    meter: Speedometer
    finite: FiniteCheck
    watch: SlowRankWatch

    data_is_late: bool = False
    """Whether a rank did not have its batches for the next update after the last one."""
    summary: str = ""
    """A short text about the newest record of the metrics, for the progress bar."""
    held_up_seconds: float = 0.0
    """How long saves have held up training since the newest record of the metrics."""
    evaluation_seconds: float = 0.0
    """How long the last whole evaluation took."""
    save_seconds: float = 0.0
    """How long the last save held up training."""

    @property
    def max_steps(self) -> int:
        """The step at which the training is finished."""
        return self.config.train.max_steps


def set_up(
    config: RunConfig,
    world: World,
    compute: Compute,
    stop: StopRequest,
    lock: RunLock,
    events: EventLog,
) -> Run:
    """Open the data, make the model, and restore the newest checkpoint.

    All ranks must call this function.

    Args:
        config: The settings of the run.
        world: The ranks of the run.
        compute: The device and the arithmetic of this rank.
        stop: The request to stop. It is only handed on to the `Run`.
        lock: The right to write below the run's directory. Rank 0 takes it here.
        events: The log of events, with their times.

    Raises:
        ConfigError: The data has too little text for the settings.
        FatalError: The set-up failed, and a restart would fail the same way.
        RetryableError: The set-up failed, and a restart may succeed.
    """
    console, reports = Console(speaks=world.is_main), Reports(events)
    train, device = config.train, compute.device
    dataset = open_dataset(config.dataset_dir)
    events.write(Name.DATA_OPENED)
    tokens = len(dataset.train)
    order = SampleOrder(tokens, config.model.block_size, train.global_batch_size, config.seed)
    plan = plan_batch(train.global_batch_size, train.micro_batch_size, world.size, world.rank)

    with torch.device("meta"):  # Memory comes later, and only for this rank's part.
        model = GPT(config.model, dataset.tokenizer.vocab_size)
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    wanted = Wanted(shapes, dataset.fingerprint)
    found = find_checkpoint(config, world, wanted, lock, console.say)
    compiled = CompiledCode(config, world, compute, console.say)
    compiled.take()
    parameters, flops_per_token = model.parameter_count(), model.flops_per_token()
    parallel = Parallel(model, train, compute, world, lambda: _fill(model, config, found))
    optimizer = make_optimizer(model, train)
    scaler = torch.amp.GradScaler(device.type, enabled=compute.dtype == torch.float16)
    for line in (
        *compute.reasons,
        parallel.describe(),
        plan.describe(config.model.block_size),
        *filter(None, [plan.idle_ranks()]),
        config.checkpoint.describe(),
        f"model {parameters:,} parameters, data {tokens:,} training and "
        f"{len(dataset.val):,} validation tokens, {order.windows_per_epoch:,} windows per epoch",
    ):
        console.say(line)

    state = RunState(config, world, compute, dataset, model, optimizer, scaler, lock, console.say)
    first_step = state.restore(found)
    events.write(Name.RESTORED, step=first_step, tokens_per_step=config.tokens_per_update)
    metrics_log = None
    if world.is_main:
        write_text(config.run_dir / "run.yaml", dump_config(config))
        keep_tokenizer(config.run_dir, dataset.tokenizer)
        metrics_log = MetricsLog(config.run_dir, first_step, console.say)
        state.call_before_commit(metrics_log.sync)  # so that no kill leaves a gap in the metrics
    peak = peak_flops(compute.device_name, compute.dtype)
    return Run(
        config=config,
        world=world,
        compute=compute,
        stop=stop,
        dataset=dataset,
        prefetch=Prefetch(_micro_batches(config, dataset, order, plan), end=train.max_steps),
        model=model,
        parallel=parallel,
        compiled=compiled,
        optimizer=optimizer,
        scaler=scaler,
        state=state,
        first_step=first_step,
        events=events,
        reports=reports,
        console=console,
        metrics_log=metrics_log,
        meter=Speedometer(config.tokens_per_update, flops_per_token, peak, world.size, device),
        finite=FiniteCheck(device, skips_updates=scaler.is_enabled()),
        watch=SlowRankWatch(world, device, lambda: state.own_save_seconds, events, console.say),
    )


def _fill(model: GPT, config: RunConfig, found: Found) -> None:
    """Give the parameters their first values, unless a checkpoint is restored later."""
    if found.step is not None:
        return
    if config.train.initial_weights is not None:
        load_gpt2_weights(model, config.train.initial_weights)
    else:
        initialise(model, config.model, config.seed)


def _micro_batches(
    config: RunConfig, dataset: Dataset, order: SampleOrder, plan: BatchPlan
) -> Callable[[int], list[Batch]]:
    """Return the function that makes this rank's part of an update's global batch.

    `Prefetch` calls the function in a thread of its own.
    """
    length = config.model.block_size

    def make(update: int) -> list[Batch]:
        return [
            gather(dataset.train, order.window_starts(update, part), length, rows=plan.rows)
            for part in plan.micro_batches
        ]

    return make
