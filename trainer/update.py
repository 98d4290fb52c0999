"""Makes one update of the weights: the gradients of the global batch, then the optimizer's step."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass

import torch

from trainer.data.gather import to_device
from trainer.launch.exit_codes import RetryableError
from trainer.schedule import learning_rate
from trainer.set_up import Run
from trainer.watch.beat import BEAT, Phase
from trainer.watch.laps import Part

_POLL_SECONDS = 1.0  # less than the smallest train.timeout_seconds


@dataclass(frozen=True)
class Update:
    """The figures of one update. The device may still be computing the tensors."""

    learning_rate: float
    loss_sum: torch.Tensor
    """The sum of the losses of this rank's part of the global batch, in nats."""
    grad_norm: torch.Tensor
    """The norm of the whole gradient, before it was clipped."""


def wait_for_checkpoint(run: Run, step: int) -> None:
    """Wait for a checkpoint that is still being written, if a kill could cost too many steps.

    `RunState.before_update` decides whether it could.
    """
    if waited := run.state.before_update(step):
        _note_wait_for_save(run, waited)
        run.meter.leave_out(waited)


def update_weights(run: Run, step: int) -> Update:
    """Update the weights for the `step`-th time, counted from 0."""
    run.watch.begin_step()
    BEAT.at(Phase.DATA, step)
    if run.data_is_late:
        _wait_for_data(run, step)
    rate = learning_rate(step, run.config.train)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    loss_sum = backward_of_global_batch(run, step)

    BEAT.phase(Phase.UPDATE)
    run.scaler.unscale_(run.optimizer)
    limit = run.config.train.grad_clip or math.inf
    norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), limit)
    grad_norm = run.parallel.gather_full(norm)
    waited = run.state.before_weights_change()  # A save may still be copying the weights.
    if waited:
        run.watch.lap(Part.SAVE)
    _note_wait_for_save(run, waited)
    run.scaler.step(run.optimizer)
    run.scaler.update()

    run.finite.note(grad_norm)
    run.meter.step_done(step + 1)
    run.watch.lap(Part.COMPUTE)
    return Update(rate, loss_sum, grad_norm)


def backward_of_global_batch(run: Run, step: int) -> torch.Tensor:
    """Compute the gradients of the mean loss over the global batch.

    Returns:
        The sum of the losses of this rank's part, in nats.
    """
    device, tokens = run.compute.device, run.config.tokens_per_update
    torch.manual_seed(_dropout_seed(run.config.seed, step, run.world.rank))
    loss_sum = torch.zeros((), device=device)
    run.optimizer.zero_grad(set_to_none=True)
    with run.meter.fetching():
        batches = run.prefetch.take(step)
    run.watch.lap(Part.DATA)
    BEAT.phase(Phase.PASSES)
    for position, batch in enumerate(batches, start=1):
        is_last = position == len(batches)
        with run.compute.autocast():
            loss = run.parallel.loss(*to_device(batch, device), reduces=is_last)
        # The gradients are summed over the ranks, so that every token has the same weight.
        run.scaler.scale(run.parallel.scale_for_grad_sum(loss) / tokens).backward()
        loss_sum += loss.detach()
    run.watch.lap(Part.WAIT)  # Almost 0 with fsdp: its pass ends in a collective.
    return loss_sum


def _wait_for_data(run: Run, step: int) -> None:
    """Wait until all ranks have their batches, and meet again and again meanwhile.

    A volume may take longer to answer than a rank may wait for the others in one collective, such
    as an NFS server that restarts. `train.start_timeout_seconds` is the limit here.

    Raises:
        RetryableError: A rank has waited for longer. All ranks raise the error.
    """
    limit = max(run.config.train.start_timeout_seconds, run.config.train.timeout_seconds)
    begin, has_data = time.monotonic(), False
    while True:
        if not has_data:
            with run.meter.fetching():
                has_data = run.prefetch.wait(_POLL_SECONDS)
            run.watch.lap(Part.DATA)
            if has_data:
                BEAT.enter()  # The entrypoint sees a rank that waits for the others.
        mine = 0 if has_data else run.world.rank + 1
        late, seconds = run.world.max_unseen([mine, time.monotonic() - begin])
        run.watch.lap(Part.WAIT)
        if not late:
            BEAT.leave()
            return
        if seconds > limit:
            raise RetryableError(
                f"rank {late - 1:.0f} has waited for {seconds:.0f} s for the data of step "
                f"{step + 1}, longer than train.start_timeout_seconds ({limit}): its volume does "
                "not answer"
            )


def _dropout_seed(seed: int, update: int, rank: int) -> int:
    """The seed of the dropout of one update on one rank.

    It is computed from these three numbers, so no state of a generator has to be saved.
    """
    digest = hashlib.blake2b(f"{seed}/{update}/{rank}".encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "big")


def _note_wait_for_save(run: Run, seconds: float) -> None:
    run.held_up_seconds += seconds
    run.reports.waited_for_save(seconds)


def warm_up(run: Run) -> None:
    """Make fresh and resumed runs add up in the same order, and begin to watch the collectives."""
    if run.parallel.needs_bucket_warmup:
        # DDP reorders its buckets after the first backward pass, which changes the order of the
        # additions in its all-reduce. So the first pass of every start is discarded.
        backward_of_global_batch(run, run.first_step)
    watch = run.watch

    def entering_collective() -> None:
        watch.lap(Part.COMPUTE)
        BEAT.enter()

    def left_collective() -> None:
        watch.lap(Part.WAIT)
        BEAT.leave()

    run.parallel.watch_collectives(entering_collective, left_collective)
