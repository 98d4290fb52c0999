"""A GPT-2-class decoder-only transformer.

Shapes: B sequences, T tokens, C = n_embd channels. The groups of weight decay are nanoGPT's, and so
are the initial values at GPT-2's width; narrower models start with larger ones (docs/trainer.md).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from trainer.config import ModelConfig, TrainConfig
from trainer.linear import linear

# GPT-2's 0.02 at its width of 768, and the same size of a layer's output at any other width.
_GPT2_INITIAL_STD, _GPT2_WIDTH = 0.02, 768


def padded_vocab_size(vocab_size: int) -> int:
    """Large vocabularies grow to a multiple of 64, which GPUs multiply faster (50257 -> 50304)."""
    return -(-vocab_size // 64) * 64 if vocab_size > 1024 else vocab_size


class KVCache:
    """Keys and values of the tokens so far, so that a sample computes each of them once.

    Shape (n_layer, B, n_head, block_size, C / n_head); the first `length` positions are filled.
    """

    def __init__(self, config: ModelConfig, batch: int, like: torch.Tensor):
        head_width = config.n_embd // config.n_head
        shape = (config.n_layer, batch, config.n_head, config.block_size, head_width)
        self.length = 0
        self._keys, self._values = like.new_empty(shape), like.new_empty(shape)

    def extend(
        self, layer: int, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the new positions of one layer; returns its keys and values of all positions."""
        end = self.length + k.shape[2]
        self._keys[layer, :, :, self.length : end] = k
        self._values[layer, :, :, self.length : end] = v
        return self._keys[layer, :, :, :end], self._values[layer, :, :, :end]


class Linear(nn.Linear):
    """A dense layer, by `trainer.linear`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """(..., I) -> (..., O)."""
        return linear(input, self.weight, self.bias)


class LayerNorm(nn.Module):
    """Layer norm with an optional bias."""

    def __init__(self, width: int, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., C) -> (..., C)."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    """Multi-head attention in which a token sees itself and what came before."""

    def __init__(self, config: ModelConfig, layer: int):
        super().__init__()
        self.layer = layer
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = Linear(config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x: torch.Tensor, cache: KVCache | None = None) -> torch.Tensor:
        """(B, T, C) -> (B, T, C)."""
        batch, length, width = x.shape
        heads = (batch, length, self.n_head, width // self.n_head)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
        if cache is not None:
            k, v = cache.extend(self.layer, k, v)
        # A single token comes last and sees all keys: nothing to mask.
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=length > 1
        )
        y = self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return F.dropout(y, self.dropout, self.training)


class MLP(nn.Module):
    """The feed-forward half of a block, four times as wide inside."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.dropout = config.dropout
        self.approximate = "tanh" if config.gelu == "tanh" else "none"
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.c_proj = Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = self.c_proj(F.gelu(self.c_fc(x), approximate=self.approximate))
        return F.dropout(x, self.dropout, self.training)


class Block(nn.Module):
    """Attention and MLP, each behind a layer norm and added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int):
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, config.bias)
        self.attn = CausalSelfAttention(config, layer)
        self.ln_2 = LayerNorm(config.n_embd, config.bias)
        self.mlp = MLP(config)

    def forward(self, x: torch.Tensor, cache: KVCache | None = None) -> torch.Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = x + self.attn(self.ln_1(x), cache)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Token and position embeddings, blocks, and a head that shares the token embedding."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.wte = nn.Embedding(padded_vocab_size(vocab_size), config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.n_layer))
        self.ln_f = LayerNorm(config.n_embd, config.bias)
        self._initialise()

    def _initialise(self) -> None:
        """N(0, std); layers that write to the residual stream scaled by 1/sqrt(their number)."""
        std = _GPT2_INITIAL_STD * math.sqrt(_GPT2_WIDTH / self.config.n_embd)
        residual_std = std / math.sqrt(2 * self.config.n_layer)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() >= 2:
                is_residual = name.endswith("c_proj.weight")
                nn.init.normal_(parameter, mean=0.0, std=residual_std if is_residual else std)

    def forward(
        self,
        tokens: torch.Tensor,
        targets: torch.Tensor | None = None,
        cache: KVCache | None = None,
    ) -> torch.Tensor:
        """Logits of the last position, or the loss where targets are given.

        Args:
            tokens: (B, T) int64 with T <= block_size.
            targets: (B, T) int64, the next token at each position.
            cache: `tokens` continue what it holds (T = 1 unless it is empty); it is extended.

        Returns:
            Without targets: (B, vocab_size) logits of the token after the last one.
            With targets: the cross-entropy in nats, summed over all B * T positions.
        """
        start, length = 0 if cache is None else cache.length, tokens.shape[1]
        assert start + length <= self.config.block_size
        assert start == 0 or length == 1
        x = self.wte(tokens) + self.wpe.weight[start : start + length]
        x = F.dropout(x, self.config.dropout, self.training)
        for block in self.blocks:
            x = block(x, cache)
        if cache is not None:
            cache.length += length
        if targets is None:
            x = x[:, -1:]
        # Padding is a matter of layout: its rows take no part in the probabilities.
        logits = linear(self.ln_f(x), self.wte.weight)[..., : self.vocab_size]
        if targets is None:
            return logits[:, 0]
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")

    def parameter_count(self) -> int:
        """Parameters without the position table, nanoGPT's way to count."""
        return sum(p.numel() for p in self.parameters()) - self.wpe.weight.numel()

    def flops_per_token(self) -> int:
        """Forward and backward, 6N + 12 L H Q T (PaLM, arXiv:2204.02311, appendix B)."""
        config = self.config
        head_width = config.n_embd // config.n_head
        attention = 12 * config.n_layer * config.n_head * head_width * config.block_size
        return 6 * self.parameter_count() + attention


def make_optimizer(model: GPT, train: TrainConfig) -> torch.optim.AdamW:
    """Fused AdamW; matrices and embeddings decay, biases and layer norms do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": train.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (train.beta1, train.beta2)
    return torch.optim.AdamW(groups, lr=train.learning_rate, betas=betas, fused=True)


def optimizer_state_by_name(
    model: GPT, optimizer: torch.optim.AdamW
) -> dict[str, dict[str, torch.Tensor]]:
    """The optimiser's tensors, keyed by parameter name instead of position."""
    state = cast(dict[torch.Tensor, dict[str, torch.Tensor]], optimizer.state)
    return {name: dict(state[parameter]) for name, parameter in model.named_parameters()}


def load_optimizer_state(
    model: GPT, optimizer: torch.optim.AdamW, saved: dict[str, dict[str, torch.Tensor]]
) -> None:
    """Put back what `optimizer_state_by_name` gave; the tensors become the optimiser's own."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    ordered = [p for group in optimizer.param_groups for p in group["params"]]
    groups = optimizer.state_dict()["param_groups"]
    state = {index: saved[names[parameter]] for index, parameter in enumerate(ordered)}
    optimizer.load_state_dict({"state": state, "param_groups": groups})
