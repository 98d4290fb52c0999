"""A GPT-2-class decoder-only transformer.

Shapes: B sequences, T tokens, C = n_embd channels. The groups of weight decay are nanoGPT's. A
model that is built on the meta device has no values; `trainer.model.initial_weights` fills it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint as recompute

from trainer.config import ModelConfig, TrainConfig
from trainer.model.initial_weights import initialise
from trainer.model.linear import linear


def padded_vocab_size(vocab_size: int) -> int:
    """Round a large vocabulary up to a multiple of 64 (50257 -> 50304): GPUs multiply it faster."""
    return -(-vocab_size // 64) * 64 if vocab_size > 1024 else vocab_size


class KVCache:
    """The keys and values of the tokens so far. With it, a sample computes each of them once.

    Both tensors have the shape (n_layer, B, n_head, block_size, C / n_head). Their first `length`
    positions are filled.
    """

    def __init__(self, config: ModelConfig, batch: int, like: torch.Tensor):
        head_width = config.n_embd // config.n_head
        shape = (config.n_layer, batch, config.n_head, config.block_size, head_width)
        self.length = 0
        self._keys, self._values = like.new_empty(shape), like.new_empty(shape)

    def extend(
        self, layer: int, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the new positions of one layer, and return its keys and values of all positions.

        `k` and `v` have the shape (B, n_head, T, C / n_head).
        """
        end = self.length + k.shape[2]
        self._keys[layer, :, :, self.length : end] = k
        self._values[layer, :, :, self.length : end] = v
        return self._keys[layer, :, :, :end], self._values[layer, :, :, :end]


class Linear(nn.Linear):
    """A dense layer that multiplies by `trainer.model.linear`."""

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
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.layer_norm(x, self.weight.shape, self.weight.to(x.dtype), bias, 1e-5)


class CausalSelfAttention(nn.Module):
    """Multi-head attention in which a token sees only itself and the tokens before it."""

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
        # A single token is the last one, and sees all keys, so nothing has to be masked.
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=length > 1
        )
        y = self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return F.dropout(y, self.dropout, self.training)


class MLP(nn.Module):
    """The feed-forward half of a block. Its hidden layer has 4 C channels."""

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
        self.recomputes = False
        """Whether the backward pass computes the activations of this block again."""

    def forward(self, x: torch.Tensor, cache: KVCache | None = None) -> torch.Tensor:
        """(B, T, C) -> (B, T, C)."""
        if self.recomputes and cache is None:
            return cast(torch.Tensor, recompute(self._add_both, x, use_reentrant=False))
        return self._add_both(x, cache)

    def _add_both(self, x: torch.Tensor, cache: KVCache | None = None) -> torch.Tensor:
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
        if not self.wte.weight.is_meta:
            initialise(self, config, int(torch.randint(2**62, ())))

    def forward(
        self,
        tokens: torch.Tensor,
        targets: torch.Tensor | None = None,
        cache: KVCache | None = None,
    ) -> torch.Tensor:
        """Compute the logits of the next token, or the loss if targets are given.

        Args:
            tokens: (B, T) int64 with T <= block_size.
            targets: (B, T) int64, the next token at each position. -100 stands for no target.
            cache: Holds the tokens that `tokens` continue, and is extended by `tokens`. T must be 1
                unless the cache is empty.

        Returns:
            Without targets: (B, vocab_size) logits of the token after the last one.
            With targets: the cross-entropy in nats, summed over the positions with a target.
        """
        start, length = 0 if cache is None else cache.length, tokens.shape[1]
        assert start + length <= self.config.block_size
        assert start == 0 or length == 1
        x = self.wte(tokens) + self.wpe.weight[start : start + length]
        # The residual stream stays in float32, whatever the precision of the multiplications is.
        # The embedding comes in low precision from FSDP2, and in float32 from DDP.
        x = F.dropout(x.float(), self.config.dropout, self.training)
        for block in self.blocks:
            x = block(x, cache)
        if cache is not None:
            cache.length += length
        if targets is None:
            return linear(self.ln_f(x[:, -1:]), self.wte.weight)[:, 0, : self.vocab_size]
        logits = linear(self.ln_f(x), self.wte.weight, self._padding_has_no_probability())
        # Without float(), autocast leaves the logarithms in bfloat16 on a GPU, whose steps are 0.06
        # at a loss of 10.
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")

    def _padding_has_no_probability(self) -> torch.Tensor | None:
        """Return the head's bias: minus infinity for each row that only pads the vocabulary.

        The padded logits are not cut off, because rows of an odd length would have to be copied.
        They are not overwritten either, because the logits would then be kept in float32 for the
        backward pass, and their gradient would be copied.
        """
        weight = self.wte.weight
        if self.vocab_size == len(weight):
            return None
        bias = torch.zeros(len(weight), dtype=weight.dtype, device=weight.device)
        bias[self.vocab_size :] = -math.inf
        return bias

    def parameter_count(self) -> int:
        """The number of parameters without the position table, as nanoGPT counts them."""
        return sum(p.numel() for p in self.parameters()) - self.wpe.weight.numel()

    def flops_per_token(self) -> int:
        """The floating-point operations for one token, forward and backward.

        The formula is 6N + 12 L H Q T (PaLM, arXiv:2204.02311, appendix B).
        """
        config = self.config
        head_width = config.n_embd // config.n_head
        attention = 12 * config.n_layer * config.n_head * head_width * config.block_size
        return 6 * self.parameter_count() + attention


def compile_blocks(model: GPT) -> None:
    """Compile each block by itself, so that all blocks share one graph without the modules' hooks.

    `block.compile()` would also compile the code that calls the hooks. A function that differs from
    block to block would be compiled for each block, and for at most 8 of them (dynamo's
    recompile_limit).
    """
    for block in model.blocks:
        # trainer/parallel/wrap.py has the reason for `dynamic`.
        block.forward = torch.compile(block.forward, dynamic=False)


def make_optimizer(model: GPT, train: TrainConfig) -> torch.optim.AdamW:
    """Make a fused AdamW. Matrices and embeddings decay; biases and layer norms do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": train.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (train.beta1, train.beta2)
    return torch.optim.AdamW(groups, lr=train.learning_rate, betas=betas, fused=True)
