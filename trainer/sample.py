"""Text from the newest checkpoint of a run."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

from pathlib import Path

import torch

from trainer import checkpoint
from trainer.config import RunConfig
from trainer.exit_codes import FatalError
from trainer.model import GPT
from trainer.tokenizer import tokenizer_from_json
from trainer.train import CHECKPOINTS_DIR


def sample(
    run_dir: Path,
    prompt: str,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    seed: int,
) -> str:
    """The prompt and its continuation.

    Raises:
        FatalError: no checkpoint that verifies, a prompt outside the vocabulary, a bad option.
    """
    for name, value, least in (
        ("--max-new-tokens", max_new_tokens, 1),
        ("--temperature", temperature, 0),
        ("--top-k", 1 if top_k is None else top_k, 1),
    ):
        if value < least:
            raise FatalError(f"{name}: {value} is not allowed; allowed: at least {least}")
    root = run_dir / CHECKPOINTS_DIR
    step = checkpoint.latest_verified(root, lambda line: print(line, flush=True))
    if step is None:
        raise FatalError(f"--run-dir {run_dir}: no checkpoint in {root} that verifies")
    state = checkpoint.load_state(root, step)
    config = RunConfig.from_mapping(state["config"])
    tokenizer = tokenizer_from_json(state["tokenizer"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = GPT(config.model, tokenizer.vocab_size).to(device)
    model.load_state_dict(checkpoint.load_tensors(root, step, "model", device))
    model.eval()
    try:
        tokens = tokenizer.encode(prompt)
    except ValueError as error:
        raise FatalError(f"--prompt: {error}") from error
    if len(tokens) == 0:
        raise FatalError("--prompt: it must hold at least one token")
    start = torch.tensor([tokens.tolist()], dtype=torch.int64, device=device)
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        result = model.generate(start, max_new_tokens, temperature, top_k, generator)
    return tokenizer.decode(result[0].tolist())
