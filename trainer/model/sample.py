"""The command `sample`: it continues a text with the newest checkpoint of a run."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

from pathlib import Path

import torch

from trainer.config.problem import problem_text
from trainer.launch.exit_codes import FatalError
from trainer.model.generate import Sampling, generate
from trainer.model.saved_model import load_saved_model


def sample(
    run_dir: Path,
    prompt: str,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    use_cache: bool = True,
) -> str:
    """Return the prompt and its continuation.

    Raises:
        FatalError: No checkpoint verifies, the prompt has characters that the tokenizer does not
            know, or an option cannot be used.
    """
    if max_new_tokens < 1:
        reason, remedy = "there would be no text", "Set a whole number of at least 1"
        raise FatalError(problem_text("--max-new-tokens", max_new_tokens, reason, remedy))
    if not 0 <= seed < 2**63:
        reason = "the generator of random numbers takes no such seed"
        raise FatalError(problem_text("--seed", seed, reason, "Set 0 to 2^63 - 1"))
    try:
        sampling = Sampling(temperature, top_k, top_p)
    except ValueError as error:
        raise FatalError(f"--{error}") from error
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, tokenizer = load_saved_model(run_dir, device)
    model.eval()
    try:
        tokens = tokenizer.encode(prompt).tolist()
    except ValueError as error:
        raise FatalError(f"--prompt: {error}") from error
    if not tokens:
        reason = "the model goes on from a text, and this one has no token"
        raise FatalError(problem_text("--prompt", prompt, reason, "Write at least one character"))
    start = torch.tensor([tokens], dtype=torch.int64, device=device)
    generator = torch.Generator(device).manual_seed(seed)
    new = generate(model, start, max_new_tokens, sampling, generator, use_cache)
    return tokenizer.decode(tokens + [int(token) for token in new])
