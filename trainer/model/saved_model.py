"""Reads the model from the newest checkpoint of a run, without the state of its training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.checkpoint import layout, store
from trainer.checkpoint.layout import Layout
from trainer.checkpoint.tensors import model_tensors
from trainer.config import RunConfig
from trainer.data.kept_tokenizer import tokenizer_of_run
from trainer.data.tokenizer import Tokenizer
from trainer.launch.exit_codes import FatalError
from trainer.model.gpt import GPT
from trainer.model.gpt2_weights import LARGEST_FILE_BYTES, export_gpt2_weights
from trainer.run_folder import CHECKPOINTS_DIR


@dataclass(frozen=True)
class _Saved:
    """The newest checkpoint of a run: its directory and settings, and the places of its tensors."""

    directory: Path
    config: RunConfig
    tokenizer: Tokenizer
    layout: Layout


def _newest(run_dir: Path) -> _Saved:
    root = run_dir / CHECKPOINTS_DIR
    step = store.latest_verified(root, lambda line: print(line, flush=True), "model")
    if step is None:
        why = (
            "it has no checkpoint that can be read"
            if run_dir.is_dir()
            else "there is no such folder"
        )
        raise FatalError(
            f"--run-dir: {run_dir} cannot be used: {why}. Give the folder of a run that has saved, "
            "<data_root>/runs/<run_name>"
        )
    directory = store.directory_of(root, step)
    with store.unreadable_is_no_damage(directory.name):
        state = store.load_state(root, step)
        config = RunConfig.from_mapping(state["config"])
        tokenizer = tokenizer_of_run(run_dir, state["tokenizer"])
        return _Saved(directory, config, tokenizer, store.load_layout(root, step))


def load_saved_model(run_dir: Path, device: torch.device) -> tuple[GPT, Tokenizer]:
    """Load the model and tokenizer of the newest checkpoint that verifies.

    The state of the optimizer is not read.

    Raises:
        FatalError: No checkpoint verifies.
    """
    saved = _newest(run_dir)
    with torch.device("meta"):
        model = GPT(saved.config.model, saved.tokenizer.vocab_size)
    model.to_empty(device=device)
    with store.unreadable_is_no_damage(saved.directory.name):
        layout.read_into(saved.directory, saved.layout, model_tensors(model))
    return model, saved.tokenizer


def export_run(
    run_dir: Path, directory: Path, largest_file_bytes: int = LARGEST_FILE_BYTES
) -> None:
    """Write the newest checkpoint's weights in GPT-2's published format.

    The parts that the ranks have written are put together tensor by tensor. The memory holds the
    tensors of one file: at most `largest_file_bytes`, or the largest tensor.

    Raises:
        FatalError: No checkpoint verifies, or `directory` cannot be written.
    """
    saved, prefix = _newest(run_dir), "model."
    shapes = {
        name.removeprefix(prefix): tensor.shape
        for name, tensor in saved.layout.items()
        if name.startswith(prefix)
    }
    with store.unreadable_is_no_damage(saved.directory.name):
        export_gpt2_weights(
            saved.config.model,
            saved.tokenizer.vocab_size,
            shapes,
            lambda name: layout.read_whole(saved.directory, saved.layout, prefix + name),
            directory,
            largest_file_bytes,
        )
    print(f"wrote {directory}", flush=True)
