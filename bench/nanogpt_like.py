"""A plain training loop like that of nanoGPT's train.py, against which the trainer is measured.

It computes as that loop does: nn.Linear, attention by scaled_dot_product_attention, a memory map
opened for every batch, windows drawn with replacement and stacked one by one, the mean loss, the
next batch fetched while the step runs. On a CPU AdamW is not fused. On a GPU it is, batches go
there from pinned memory, the arithmetic is bfloat16 by autocast, TF32 is allowed, the vocabulary is
padded to a multiple of 64, and torch.compile may compile the whole model. The code is our own.

On a GPU and without compilation, autocast leaves the logarithms of the probabilities in bfloat16.
The trainer computes them in float32; with `float32_loss` this loop does the same.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import math
from contextlib import nullcontext
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from trainer.config import ModelConfig, RunConfig
from trainer.data.dataset import open_dataset
from trainer.schedule import learning_rate


class Norm(nn.Module):
    """Layer normalization without bias."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize the last dimension: (..., C) -> (..., C)."""
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
    """The GPT with GPT-2's initial values, which do not depend on the width, and a tied head."""

    def __init__(self, config: ModelConfig, vocab_size: int, float32_loss: bool = False):
        super().__init__()
        self.float32_loss = float32_loss
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
        h = self.drop(self.wte(x) + self.wpe(torch.arange(x.size(1), device=x.device)))
        for layer in self.layers:
            h = layer(h)
        logits = self.lm_head(self.ln_f(h))
        if self.float32_loss:
            logits = logits.float()
        return F.cross_entropy(logits.view(-1, logits.size(-1)), y.reshape(-1), ignore_index=-1)


class Loop:
    """The training loop; each call of `step` makes one update."""

    def __init__(
        self,
        config: RunConfig,
        device: str = "cpu",
        compiled: bool = False,
        float32_loss: bool = False,
    ):
        """Make the model, the optimizer and the first batch. The data set must be prepared.

        On "cuda" the arithmetic is bfloat16 under autocast. With `compiled`, torch.compile compiles
        the model. With `float32_loss`, the loss is computed in float32 from the logits.
        """
        self._config, self._device, train = config, device, config.train
        self._on_gpu = device.startswith("cuda")
        self.dataset = open_dataset(config.dataset_dir)
        torch.manual_seed(config.seed)
        if self._on_gpu:
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True
        vocab_size = self.dataset.tokenizer.vocab_size
        if self._on_gpu:
            vocab_size = -(-vocab_size // 64) * 64
        self.model: nn.Module = Model(config.model, vocab_size, float32_loss).to(device)
        self._parameters = list(self.model.parameters())
        matrices = [p for p in self._parameters if p.dim() >= 2]
        others = [p for p in self._parameters if p.dim() < 2]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": train.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=train.learning_rate,
            betas=(train.beta1, train.beta2),
            fused=True if self._on_gpu else None,
        )
        if compiled:
            self.model = cast(nn.Module, torch.compile(self.model))
        # nanoGPT's gradient_accumulation_steps; all micro-batches have the same size
        self._passes = max(1, train.global_batch_size // train.micro_batch_size)
        self._batch, self._done = self._get_batch(), 0

    def step(self) -> float:
        """Make one update, and return the loss of its last batch."""
        train, loss = self._config.train, torch.zeros(())
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self._done, train)
        for _ in range(self._passes):
            with torch.autocast("cuda", torch.bfloat16) if self._on_gpu else nullcontext():
                loss = self.model(*self._batch)
            self._batch = self._get_batch()
            (loss / self._passes if self._passes > 1 else loss).backward()
        if train.grad_clip:
            torch.nn.utils.clip_grad_norm_(self._parameters, train.grad_clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._done += 1
        return float(loss)

    def _get_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        block, train = self._config.model.block_size, self._config.train
        batch = min(train.global_batch_size, train.micro_batch_size)
        data = np.memmap(self._config.dataset_dir / "train.bin", dtype=np.uint16, mode="r")
        ix = torch.randint(len(data) - block, (batch,))
        x = torch.stack([torch.from_numpy(data[i : i + block].astype(np.int64)) for i in ix])
        y = torch.stack(
            [torch.from_numpy(data[i + 1 : i + 1 + block].astype(np.int64)) for i in ix]
        )
        if self._on_gpu:
            x, y = x.pin_memory(), y.pin_memory()
        return x.to(self._device, non_blocking=True), y.to(self._device, non_blocking=True)
