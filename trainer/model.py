"""A GPT-2-class decoder-only transformer.

Shapes: B sequences, T tokens, C = n_embd channels, V padded vocabulary. The initial values and
the groups of weight decay are GPT-2's, as nanoGPT has them.
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

_INITIAL_STD = 0.02


def padded_vocab_size(vocab_size: int) -> int:
    """Large vocabularies grow to a multiple of 64, which GPUs multiply faster (50257 -> 50304)."""
    return -(-vocab_size // 64) * 64 if vocab_size > 1024 else vocab_size


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

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C)."""
        batch, length, width = x.shape
        heads = (batch, length, self.n_head, width // self.n_head)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        y = self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return F.dropout(y, self.dropout, self.training)


class MLP(nn.Module):
    """The feed-forward half of a block, four times as wide inside."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.dropout = config.dropout
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C)."""
        return F.dropout(self.c_proj(F.gelu(self.c_fc(x))), self.dropout, self.training)


class Block(nn.Module):
    """Attention and MLP, each behind a layer norm and added to the residual stream."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd, config.bias)
        self.mlp = MLP(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Token and position embeddings, blocks, and a head that shares the token embedding."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.wte = nn.Embedding(padded_vocab_size(vocab_size), config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = LayerNorm(config.n_embd, config.bias)
        self._initialise()

    def _initialise(self) -> None:
        """N(0, 0.02); layers that write to the residual stream scaled by 1/sqrt(their number)."""
        residual_std = _INITIAL_STD / math.sqrt(2 * self.config.n_layer)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() >= 2:
                std = residual_std if name.endswith("c_proj.weight") else _INITIAL_STD
                nn.init.normal_(parameter, mean=0.0, std=std)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        """Logits of the last position, or the loss where targets are given.

        Args:
            tokens: (B, T) int64 with T <= block_size.
            targets: (B, T) int64, the next token at each position.

        Returns:
            Without targets: (B, V) logits of the token after the last one.
            With targets: the cross-entropy in nats, summed over all B * T positions.
        """
        length = tokens.shape[1]
        assert length <= self.config.block_size
        x = self.wte(tokens) + self.wpe.weight[:length]
        x = F.dropout(x, self.config.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        x = self.ln_f(x)
        if targets is None:
            return F.linear(x[:, -1], self.wte.weight)
        logits = F.linear(x, self.wte.weight)
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

    def generate(
        self,
        tokens: torch.Tensor,
        count: int,
        temperature: float,
        top_k: int | None,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Append `count` sampled tokens to (B, T) `tokens`; temperature 0 takes the likeliest."""
        for _ in range(count):
            logits = self(tokens[:, -self.config.block_size :]).float()[:, : self.vocab_size]
            if temperature == 0:
                chosen = logits.argmax(dim=1, keepdim=True)
            else:
                if top_k is not None:
                    least = logits.topk(min(top_k, logits.shape[1])).values[:, -1:]
                    logits = logits.masked_fill(logits < least, -math.inf)
                probabilities = F.softmax(logits / temperature, dim=1)
                chosen = torch.multinomial(probabilities, 1, generator=generator)
            tokens = torch.cat((tokens, chosen), dim=1)
        return tokens


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
