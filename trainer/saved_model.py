"""The model in the newest checkpoint of a run, without anything of its training."""

from __future__ import annotations

from pathlib import Path

import torch

from trainer import checkpoint
from trainer.config import RunConfig
from trainer.exit_codes import FatalError
from trainer.gpt2_weights import export_gpt2_weights
from trainer.model import GPT
from trainer.tokenizer import Tokenizer, tokenizer_from_json
from trainer.train import CHECKPOINTS_DIR


def load_saved_model(run_dir: Path, device: torch.device) -> tuple[GPT, Tokenizer]:
    """Model and tokenizer of the newest checkpoint that verifies.

    Raises:
        FatalError: there is none.
    """
    root = run_dir / CHECKPOINTS_DIR
    step = checkpoint.latest_verified(root, lambda line: print(line, flush=True))
    if step is None:
        raise FatalError(f"--run-dir {run_dir}: no checkpoint in {root} that verifies")
    state = checkpoint.load_state(root, step)
    config = RunConfig.from_mapping(state["config"])
    tokenizer = tokenizer_from_json(state["tokenizer"])
    model = GPT(config.model, tokenizer.vocab_size).to(device)
    model.load_state_dict(checkpoint.load_tensors(root, step, "model", device))
    return model, tokenizer


def export_run(run_dir: Path, directory: Path) -> None:
    """Write the newest checkpoint's weights in GPT-2's published format. Raises FatalError."""
    model, _ = load_saved_model(run_dir, torch.device("cpu"))
    export_gpt2_weights(model, directory)
    print(f"wrote {directory}", flush=True)
