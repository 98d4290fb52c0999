"""Generates tokens with a trained model, one at a time."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from trainer.config.problem import problem_text
from trainer.model.gpt import GPT, KVCache

# Logits that are divided by a smaller number overflow float32, and the probabilities become NaN.
_AS_ZERO = 1e-30


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn: temperature first, then top-k, then top-p.

    temperature: The logits are divided by it. With 0 the likeliest token is taken.
    top_k: Only the k likeliest tokens may be drawn.
    top_p: Only the likeliest tokens that together reach this probability may be drawn ("nucleus
        sampling", Holtzman et al., arXiv:1904.09751).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        """Raise a ValueError for an invalid value. Its text names the option, the value, the reason
        and a remedy."""
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            reason = "logits are divided by it, and 0 takes the likeliest token"
            remedy = "Set a number of at least 0"
            raise ValueError(problem_text("temperature", self.temperature, reason, remedy))
        if self.top_k is not None and self.top_k < 1:
            reason, remedy = "no token would be left", "Set a whole number of at least 1"
            raise ValueError(problem_text("top-k", self.top_k, reason, remedy))
        if self.top_p is not None and not 0 < self.top_p <= 1:
            reason, remedy = "it is a probability", "Set a number above 0 and at most 1"
            raise ValueError(problem_text("top-p", self.top_p, reason, remedy))

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Turn (B, V) logits into the (B, V) probabilities with which tokens are drawn."""
        if self.temperature < _AS_ZERO:
            return F.one_hot(logits.argmax(dim=-1), logits.shape[-1]).float()
        logits = logits.float() / self.temperature
        if self.top_k is not None:
            least = logits.topk(min(self.top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < least, -math.inf)
        probabilities = logits.softmax(dim=-1)
        if self.top_p is not None:
            ordered, places = probabilities.sort(dim=-1, descending=True)
            # A token is kept if the likelier tokens together do not reach top_p. So the likeliest
            # token is always kept.
            kept = ordered.cumsum(dim=-1) - ordered < self.top_p
            probabilities = torch.zeros_like(ordered).scatter(-1, places, ordered * kept)
            probabilities /= probabilities.sum(dim=-1, keepdim=True)
        return probabilities


def generate(
    model: GPT,
    tokens: torch.Tensor,
    count: int,
    sampling: Sampling,
    generator: torch.Generator,
    use_cache: bool = True,
) -> Iterator[torch.Tensor]:
    """Yield `count` tokens that continue (B, T) `tokens`; each yielded tensor has the shape (B,).

    The context starts with the last `block_size` tokens. When the context is full, its older half
    is dropped. Positions are absolute, so each drop makes the cache worthless: a window that slides
    by one token would compute block_size positions for each new token. The cache saves time and
    does not change the tokens, except by the rounding of sums.
    """
    block_size = model.config.block_size
    context, cache = tokens[:, -block_size:], None
    for _ in range(count):
        if context.shape[1] > block_size:
            context, cache = context[:, -max(1, block_size // 2) :], None
        with torch.no_grad():
            if not use_cache:
                logits = model(context)
            elif cache is None:
                cache = KVCache(model.config, len(context), model.wpe.weight)
                logits = model(context, cache=cache)
            else:
                logits = model(context[:, -1:], cache=cache)
            probabilities = sampling.probabilities(logits)
            chosen = torch.multinomial(probabilities, 1, generator=generator)
        context = torch.cat((context, chosen), dim=1)
        yield chosen[:, 0]
