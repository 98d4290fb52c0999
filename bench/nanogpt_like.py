"""The yardstick: a plain training loop in the manner of nanoGPT's train.py, in our own words.

It does what that loop does on a CPU, with its habits: nn.Linear, attention by
scaled_dot_product_attention, a memory map opened for every batch, windows drawn with replacement
and stacked one by one, AdamW without `fused` (nanoGPT fuses on CUDA only), the mean loss.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from trainer.config import ModelConfig, RunConfig
from trainer.dataset import open_dataset
from trainer.schedule import learning_rate


class Norm(nn.Module):
    """Layer norm without bias."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., C) -> (..., C)."""
        return F.layer_norm(x, self.weight.shape, self.weight, None, 1e-5)


class Attention(nn.Module):
    """Causal multi-head attention."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.heads, self.p = config.n_head, config.dropout
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C)."""
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(c, dim=2)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        p = self.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.drop(self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c)))


class Layer(nn.Module):
    """Attention and a feed-forward net, each with its residual connection."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        width = config.n_embd
        self.ln_1, self.attn, self.ln_2 = Norm(width), Attention(config), Norm(width)
        self.c_fc = nn.Linear(width, 4 * width, bias=False)
        self.c_proj = nn.Linear(4 * width, width, bias=False)
        self.gelu, self.drop = nn.GELU(), nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = x + self.attn(self.ln_1(x))
        return x + self.drop(self.c_proj(self.gelu(self.c_fc(self.ln_2(x)))))


class Model(nn.Module):
    """The GPT, with GPT-2's initial values whatever its width, and a tied head."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.drop = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layer))
        self.ln_f = Norm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, p in self.named_parameters():
            if p.dim() >= 2:
                scale = math.sqrt(2 * config.n_layer) if name.endswith("c_proj.weight") else 1.0
                nn.init.normal_(p, std=0.02 / scale)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean loss of (B, T) tokens `x` with targets `y`."""
        h = self.drop(self.wte(x) + self.wpe(torch.arange(x.size(1))))
        for layer in self.layers:
            h = layer(h)
        logits = self.lm_head(self.ln_f(h))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), y.reshape(-1), ignore_index=-1)


class Loop:
    """The training loop, one step at a time."""

    def __init__(self, config: RunConfig):
        """Model, optimiser and the first batch; the data set of `config` must be prepared."""
        self._config, train = config, config.train
        self.dataset = open_dataset(config.dataset_dir)
        torch.manual_seed(config.seed)
        self.model = Model(config.model, self.dataset.tokenizer.vocab_size)
        parameters = list(self.model.parameters())
        matrices = [p for p in parameters if p.dim() >= 2]
        others = [p for p in parameters if p.dim() < 2]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": train.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=train.learning_rate,
            betas=(train.beta1, train.beta2),
        )
        self._batch, self._done = self._get_batch(), 0

    def step(self) -> float:
        """One update; returns its loss."""
        train = self._config.train
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self._done, train)
        loss = self.model(*self._batch)
        self._batch = self._get_batch()
        loss.backward()
        if train.grad_clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), train.grad_clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._done += 1
        return float(loss)

    def _get_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        block, batch = self._config.model.block_size, self._config.train.global_batch_size
        data = np.memmap(self._config.dataset_dir / "train.bin", dtype=np.uint16, mode="r")
        ix = torch.randint(len(data) - block, (batch,))
        x = torch.stack([torch.from_numpy(data[i : i + block].astype(np.int64)) for i in ix])
        y = torch.stack(
            [torch.from_numpy(data[i + 1 : i + 1 + block].astype(np.int64)) for i in ix]
        )
        return x, y
