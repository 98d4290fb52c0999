"""What a run keeps to be continued: saved while it trains, loaded when it starts again."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from trainer import checkpoint
from trainer.background_save import BackgroundSave
from trainer.config import RunConfig
from trainer.cpu_copy import CpuCopy
from trainer.dataset import Dataset
from trainer.distributed import World
from trainer.evaluate import Validation
from trainer.exit_codes import FatalError
from trainer.model import GPT, load_optimizer_state, optimizer_state_by_name
from trainer.parallel import Parallel
from trainer.run_identity import check_identity, identity, write_done_marker

CHECKPOINTS_DIR = "checkpoints"
_CPU = torch.device("cpu")
_POLL_SECONDS = 1.0  # less than the least train.timeout_seconds
_STATE_KEYS = {"identity", "data_sha256", "scaler", "world_size", "loss", "val_loss"}


class RunState:
    """The model, its optimiser and gradient scaler, with the checkpoints they live in."""

    def __init__(
        self,
        config: RunConfig,
        world: World,
        dataset: Dataset,
        model: GPT,
        parallel: Parallel,
        optimizer: torch.optim.AdamW,
        scaler: torch.amp.GradScaler,
        say: Callable[[str], None],
    ):
        self._config, self._world, self._dataset, self._say = config, world, dataset, say
        self._model, self._parallel = model, parallel
        self._optimizer, self._scaler = optimizer, scaler
        self._root = config.run_dir / CHECKPOINTS_DIR
        self._copy = CpuCopy(world.is_main, parallel.whole)
        self._background = BackgroundSave()
        self._copied = threading.Event()  # whether the weights may change
        self._copied.set()
        self._lowest_val_loss = math.inf
        self._safe_step = 0  # where the run would go on after a kill
        self._writing: int | None = None  # the step that is being saved; the same on all ranks
        self.loss = math.nan
        """Of the newest checkpoint, complete or being written; nan where there is none."""
        self.validated = False
        """Whether that checkpoint holds the validation loss of its step."""

    def resume(self) -> int:
        """Load the newest usable checkpoint; returns the number of updates already done.

        Raises:
            FatalError: the checkpoint is of a run with other settings or data.
        """
        root, world = self._root, self._world
        found = None
        if world.is_main:  # reads every byte to verify; the others take its word for the step
            root.mkdir(parents=True, exist_ok=True)
            checkpoint.remove_leftovers(root)
            found = checkpoint.latest_verified(root, self._say, self._unusable)
            checkpoint.set_damaged_aside(root, found)
            best = checkpoint.best_step(root)
            lowest = None if best is None else checkpoint.val_loss(root, best)
            self._lowest_val_loss = math.inf if lowest is None else lowest
        step = int(world.broadcast(-1 if found is None else found))
        self._lowest_val_loss = world.broadcast(self._lowest_val_loss)
        if step < 0:
            self._say("no checkpoint: starting at step 0")
            return 0
        state = checkpoint.load_state(root, step)
        name = checkpoint.directory_of(root, step).name
        check_identity(state["identity"], self._config, name)
        if state["data_sha256"] != self._dataset.fingerprint:
            raise FatalError(
                f"dataset {self._config.dataset.name} has changed since run "
                f"{self._config.run_name!r} was started (other training tokens); put it back or "
                "choose another run_name"
            )
        self._load(step)
        if state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])
        self._safe_step, self.loss = step, float(state["loss"])
        self.validated = state["val_loss"] is not None
        self._say(f"continuing after step {step} from {name}")
        if state["world_size"] != world.size:
            self._say(
                f"{state['world_size']} rank(s) saved it, {world.size} continue: the same samples "
                "in the same order; sums round differently, and dropout draws other masks"
            )
        return step

    def _load(self, step: int) -> None:
        parameters, my_part = dict(self._model.named_parameters()), self._parallel.my_part
        saved = checkpoint.load_tensors(self._root, step, "model", _CPU)
        self._model.load_state_dict(
            {name: my_part(tensor, parameters[name]) for name, tensor in saved.items()}
        )
        saved = checkpoint.load_tensors(self._root, step, "optimizer", _CPU)
        parts = {
            name: {kind: my_part(tensor, parameters[name]) for kind, tensor in kinds.items()}
            for name, kinds in saved.items()
        }
        load_optimizer_state(self._model, self._optimizer, parts)

    def _unusable(self, step: int) -> str | None:
        """Why a checkpoint with the right checksums can still not be loaded into this model."""
        shapes = {name: tensor.shape for name, tensor in self._model.named_parameters()}
        try:
            state = checkpoint.load_state(self._root, step)
            if missing := _STATE_KEYS - state.keys():
                return f"{checkpoint.STATE_FILE} lacks {', '.join(sorted(missing))}"
            if state["identity"] != identity(self._config):
                return None  # another run's: said in full later, and no reason to skip it
            model = checkpoint.load_tensors(self._root, step, "model", _CPU)
            if {name: tensor.shape for name, tensor in model.items()} != shapes:
                return "model.pt holds other tensors than this model"
            optimizer = checkpoint.load_tensors(self._root, step, "optimizer", _CPU)
            for name, kinds in optimizer.items():
                if any(tensor.shape not in (shapes[name], ()) for tensor in kinds.values()):
                    return "optimizer.pt holds other tensors than this model's optimiser"
            if optimizer.keys() != shapes.keys():
                return "optimizer.pt holds other tensors than this model's optimiser"
        except Exception as error:  # whatever a file that somebody made can lead to
            return f"cannot be loaded: {type(error).__name__}: {str(error).splitlines()[:1]}"
        return None

    def is_best(self, validation: Validation | None) -> bool:
        """Whether this is the lowest validation loss so far, and its checkpoint is to be kept."""
        keeps = self._config.checkpoint.keep_best
        return keeps and validation is not None and validation.loss < self._lowest_val_loss

    @property
    def save_failed(self) -> bool:
        """Whether a write of this rank has failed; to be shared with all ranks."""
        return self._background.failure is not None

    def save(self, step: int, loss: float, validation: Validation | None) -> float:
        """Begin to save; returns the seconds that training was held up.

        All ranks must call it. Waits until the save before has ended. The tensors may still be
        copied when it returns: see `before_weights_change`.

        Raises:
            FatalError: a checkpoint could not be written; the complete ones are still there.
        """
        begin = time.perf_counter()
        self.wait()
        best = self.is_best(validation)
        if best and validation is not None:
            self._lowest_val_loss = validation.loss
        tokens_per_update = self._config.train.global_batch_size * self._config.model.block_size
        state = {
            "identity": identity(self._config),
            "data_sha256": self._dataset.fingerprint,
            "tokenizer": self._dataset.tokenizer.to_json(),
            "config": self._config.to_mapping(),
            "scaler": self._scaler.state_dict(),
            "world_size": self._world.size,
            "parallel": self._config.train.parallel,
            "tokens": step * tokens_per_update,
            "loss": loss,
            "val_loss": validation and validation.loss,
            "torch_version": str(torch.__version__),
        }
        live = {
            "model": self._model.state_dict(),
            "optimizer": optimizer_state_by_name(self._model, self._optimizer),
        }

        def take() -> dict[str, Any]:
            return self._copy.take(live, self._copied.set)

        self._copied.clear()
        # Shards are gathered by all ranks together, so here and now.
        tensors = None if self._parallel.has_whole and self._world.is_main else take()
        if self._world.is_main:
            self._background.start(lambda: self._write(step, tensors or take(), state, best))
        self._writing, self.loss, self.validated = step, loss, validation is not None
        if not self._config.checkpoint.asynchronous:
            self.wait()
        return time.perf_counter() - begin

    def _write(self, step: int, tensors: dict[str, Any], state: dict[str, Any], best: bool) -> None:
        begin, keep = time.perf_counter(), self._config.checkpoint
        try:
            checkpoint.save(self._root, step, tensors, state, keep.keep_last, keep.keep_best)
        except OSError as error:
            there = [checkpoint.directory_of(self._root, s).name for s in self._complete()]
            raise OSError(
                error.errno,
                f"the checkpoint of step {step} could not be written: {error}; the earlier ones "
                f"are untouched ({', '.join(there) or 'there are none'})",
            ) from error
        name = checkpoint.directory_of(self._root, step).name
        note = ", the lowest validation loss so far" if best else ""
        self._say(f"checkpoint {name} saved in {time.perf_counter() - begin:.2f} s{note}")

    def before_weights_change(self) -> float:
        """Wait for the copy that a save began; returns the seconds that training was held up.

        It is made while the next forward and backward passes, which only read the weights, run.
        """
        if self._copied.is_set():
            return 0.0
        begin = time.perf_counter()
        self._copied.wait()
        return time.perf_counter() - begin

    def before_update(self, step: int) -> float:
        """Wait for the write in flight if a kill would cost more than `checkpoint.interval` steps
        once another one is trained; returns the seconds that training was held up.

        All ranks must call it, after the same `step`: it depends on nothing but steps.

        Raises:
            FatalError: a checkpoint could not be written.
        """
        interval = self._config.checkpoint.interval
        if self._writing is None or not interval or step < self._safe_step + interval:
            return 0.0
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # steps that the GPU still works on are not time lost
        begin = time.perf_counter()
        self.wait()
        return time.perf_counter() - begin

    def wait(self) -> None:
        """Return when every rank knows that nothing is being written any more.

        The ranks ask each other again and again: a write may take longer than
        `train.timeout_seconds`, a collective may not.

        Raises:
            FatalError: a checkpoint could not be written.
        """
        writes = 1.0
        while writes:
            is_done = self._background.wait(_POLL_SECONDS)
            writes, failures = self._world.sum([float(not is_done), float(self.save_failed)])
            if failures:
                self.raise_failure()
        if self._writing is not None:
            self._safe_step, self._writing = self._writing, None

    def raise_failure(self) -> None:
        """End this rank because a checkpoint could not be written."""
        failure = self._background.failure
        raise FatalError(
            failure.strerror if failure else "a checkpoint could not be written: see rank 0"
        )

    def finish(self, step: int) -> None:
        """Mark the run as finished after `step` updates; on rank 0."""
        state = checkpoint.load_state(self._root, step)
        write_done_marker(self._config, {key: state[key] for key in ("step", "loss", "val_loss")})

    def let_write_end(self) -> None:
        """Before this process ends for whatever reason: a save under way is not thrown away."""
        self._background.wait()

    def _complete(self) -> list[int]:
        return checkpoint.complete_steps(self._root)
