"""Saves model, optimizer and gradient scaler to checkpoints, and restores them."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from trainer.checkpoint import layout, store, verified_words
from trainer.checkpoint.resume import STATE_FORMAT, Found
from trainer.checkpoint.run_identity import identity, write_done_marker
from trainer.checkpoint.run_lock import RunLock
from trainer.checkpoint.save import Save
from trainer.checkpoint.second_chance import forget_trouble
from trainer.checkpoint.tensors import give_memory, state_tensors
from trainer.config import RunConfig
from trainer.data.dataset import Dataset
from trainer.evaluate import Validation
from trainer.metrics.finite import finite_or_none
from trainer.model.gpt import GPT
from trainer.parallel.device import Compute
from trainer.parallel.world import World
from trainer.run_folder import CHECKPOINTS_DIR


class RunState:
    """The model, its optimizer and gradient scaler, and the checkpoints that hold them."""

    def __init__(
        self,
        config: RunConfig,
        world: World,
        compute: Compute,
        dataset: Dataset,
        model: GPT,
        optimizer: torch.optim.AdamW,
        scaler: torch.amp.GradScaler,
        lock: RunLock,
        say: Callable[[str], None],
    ):
        self._config, self._world, self._dataset, self._say = config, world, dataset, say
        self._model, self._optimizer, self._scaler = model, optimizer, scaler
        self._root, self._device = config.run_dir / CHECKPOINTS_DIR, compute.device
        # A process of an earlier start may still be writing, so its folder names must differ.
        tag = int(world.broadcast(float(random.SystemRandom().getrandbits(48))))
        self._save = Save(config, world, compute.device, f"{tag:x}", lock, say)
        self._lowest_val_loss = math.inf
        self._lowest_before: tuple[int, float] | None = None
        """While a best checkpoint is being saved: its step, and the lowest loss before it."""
        self.loss = math.nan
        """The training loss of the newest checkpoint, complete or not yet; nan without one."""
        self.validated = False
        """Whether the newest checkpoint holds the validation loss of its step. At the last step
        this must be the loss on the whole split."""

    @property
    def safe_step(self) -> int:
        """The step of the newest complete checkpoint, or 0 if there is none."""
        return self._save.safe_step

    @property
    def own_save_seconds(self) -> float:
        """The seconds that training has waited for this rank's own part of checkpoints."""
        return self._save.own_seconds

    def call_before_commit(self, work: Callable[[], None]) -> None:
        """Let rank 0 call `work` in a thread before it puts a checkpoint in place."""
        self._save.before_commit = work

    def restore(self, found: Found) -> int:
        """Load the checkpoint that was found, and return the number of updates already made.

        Raises:
            FatalError: This process may not read the checkpoint.
            RetryableError: The storage fails, or there is too little memory.
        """
        self._lowest_val_loss = found.lowest_val_loss
        if found.step is None:
            return 0
        step, name = found.step, store.directory_of(self._root, found.step).name
        with store.unreadable_is_no_damage(name):
            state = store.load_state(self._root, step)
            give_memory(self._optimizer)
            layout.read_into(
                store.directory_of(self._root, step),
                store.load_layout(self._root, step),
                state_tensors(self._model, self._optimizer),
            )
        if state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])
        self._save.safe_step = step
        self.loss = math.nan if state["loss"] is None else float(state["loss"])
        is_last = step >= self._config.train.max_steps
        self.validated = (_full_val_loss(state) if is_last else state["val_loss"]) is not None
        self._say(verified_words.continued(step, name))
        self._say_what_differs(state)
        return step

    def _say_what_differs(self, state: Mapping[str, Any]) -> None:
        world, train = self._world, self._config.train
        if state["world_size"] != world.size:
            self._say(
                f"{state['world_size']} rank(s) saved it, {world.size} continue: the same samples "
                "in the same order; sums round differently, and dropout draws other masks"
            )
        config = state.get("config", {})
        tokens, tokens_now = config.get("eval", {}).get("max_tokens"), self._config.eval.max_tokens
        if tokens != tokens_now:
            before, now = (str(each or "not set") for each in (tokens, tokens_now))
            self._say(
                f"warning: eval.max_tokens was {before} before, now it is {now}: validation losses "
                "are of other tokens from here on, and the best checkpoint is chosen among both"
            )
        now = self._dataset.val_fingerprint
        if state.get("val_sha256", now) != now:  # Earlier versions did not save it.
            self._say(
                f"warning: the validation split of dataset {self._config.dataset.name} has been "
                "replaced: validation losses are of other tokens from here on, and the best "
                "checkpoint is chosen among both"
            )
        saved = config.get("train", {})
        before = saved.get("decay_steps") or saved.get("max_steps")
        now = train.decay_steps or train.max_steps
        if before is not None and before != now:
            self._say(
                f"warning: the learning rate decayed until step {before} before, now until step "
                f"{now}, so it jumps at this step; set train.decay_steps to {before} to keep it"
            )

    def is_best(self, validation: Validation | None) -> bool:
        """Whether this is the lowest validation loss so far, and `checkpoint.keep_best` is set."""
        keeps = self._config.checkpoint.keep_best
        if not keeps or validation is None:
            return False
        self._forget_lost_best()
        return validation.compared_loss < self._lowest_val_loss

    def _forget_lost_best(self) -> None:
        """Undo the lowest loss of a save that was given up, because it has left no checkpoint."""
        if self._lowest_before is None or self._save.is_under_way:
            return
        step, lowest = self._lowest_before
        if self._save.safe_step < step:
            self._lowest_val_loss = lowest
        self._lowest_before = None

    def save(
        self, step: int, loss: float, validation: Validation | None, is_last: bool = False
    ) -> float:
        """Begin to save, and return the seconds that training was held up.

        All ranks must call this. It waits until the previous save has ended. The tensors may still
        be copied when it returns: see `before_weights_change`.

        Args:
            step: The number of updates already made.
            loss: The training loss of the last update, in nats per token.
            validation: The result of the evaluation after this step, if there was one.
            is_last: Whether no other save follows. If so, the save is repeated at once if the
                storage fails.

        Raises:
            FatalError: A checkpoint could not be written. The complete ones still exist.
        """
        begin = time.perf_counter()
        self._save.wait()
        self._forget_lost_best()
        best = self.is_best(validation)
        if best and validation is not None:
            self._lowest_before = (step, self._lowest_val_loss)
            self._lowest_val_loss = validation.compared_loss
        val_loss = full_val_loss = None
        if validation is not None:
            val_loss = finite_or_none(validation.compared_loss)
            full_val_loss = None if validation.is_part else finite_or_none(validation.loss)
        state = {
            "step": step,
            "format": STATE_FORMAT,
            "identity": identity(self._config),
            "data_sha256": self._dataset.fingerprint,
            "val_sha256": self._dataset.val_fingerprint,
            "tokenizer": self._dataset.tokenizer.to_json(),
            "config": self._config.to_mapping(),
            "scaler": self._scaler.state_dict(),
            "world_size": self._world.size,
            "parallel": self._config.train.parallel,
            "tokens": step * self._config.tokens_per_update,
            "loss": finite_or_none(loss),
            "val_loss": val_loss,
            "full_val_loss": full_val_loss,
            "torch_version": str(torch.__version__),
        }
        note = ", the lowest validation loss so far" if best else ""
        self._save.begin(step, state_tensors(self._model, self._optimizer), state, note, is_last)
        self.loss, self.validated = loss, validation is not None
        if not self._config.checkpoint.asynchronous:
            self._save.wait()
        return time.perf_counter() - begin

    def before_weights_change(self) -> float:
        """Complete the copy that a save began, and return the seconds that training was held up.

        Until this call, the copy is made while the next forward and backward passes run, because
        these only read the weights.
        """
        if self._save.is_copied:
            return 0.0
        begin = time.perf_counter()
        self._save.let_weights_change()
        return time.perf_counter() - begin

    def before_update(self, step: int) -> float:
        """Wait for the save under way if one more step would leave too many of them unsaved.

        These are more than `checkpoint.interval` steps, which a kill would then cost. All ranks
        must call this after the same `step`, because only the step decides whether to wait.

        Returns:
            The seconds that training was held up.

        Raises:
            FatalError: A checkpoint could not be written.
        """
        interval = self._config.checkpoint.interval
        is_safe = not interval or step < self._save.safe_step + interval
        if is_safe or not self._save.is_under_way:
            return 0.0
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # The wait for the GPU's own work is not counted.
        begin = time.perf_counter()
        self._save.wait()
        return time.perf_counter() - begin

    def after_update(
        self, stop_requested: bool, numbers: Sequence[float] = ()
    ) -> tuple[bool, list[float]]:
        """Begin the next part of the save under way, if all ranks have ended its current part.

        All ranks must call this after every update, with equally many numbers.

        Returns:
            Whether any rank has to stop, and the sums of `numbers` over all ranks.

        Raises:
            FatalError: A checkpoint could not be written.
        """
        asked = [float(stop_requested), float(self._save.is_busy)]
        stops, busy, *sums = self._world.sum([*asked, *numbers])
        if not busy:
            self._save.go_on()
        return stops > 0, sums

    def wait(self) -> None:
        """Return when every rank knows that nothing is being written any more.

        Raises:
            FatalError: A checkpoint could not be written.
        """
        self._save.wait()

    def finish(self, step: int) -> None:
        """Mark the run as finished after `step` updates. Only rank 0 may call this."""
        state = store.load_state(self._root, step)
        result = {"step": step, "loss": state["loss"], "val_loss": _full_val_loss(state)}
        write_done_marker(self._config, result, self._dataset.fingerprint)
        forget_trouble(self._config.run_dir)

    def drain(self) -> None:
        """Wait until this process has written its files. Call this before it ends, always."""
        self._save.drain()


def _full_val_loss(state: Mapping[str, Any]) -> float | None:
    """Return the loss on the whole validation split, or None if it was not measured.

    Earlier versions kept only one loss. After the last step it is that of the whole split.
    """
    return state.get("full_val_loss", state["val_loss"])
