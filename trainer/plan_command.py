"""The command `plan`: it prints the model's size, and then the table of trainer/plan.py."""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

import argparse
import math

import torch

from trainer.config import RunConfig
from trainer.data.gpt2_tokenizer import GPT2_VOCAB_SIZE
from trainer.launch.exit_codes import FatalError
from trainer.metrics.peak_flops import peak_flops
from trainer.model.gpt import GPT
from trainer.plan import WEIGHT_BYTES, Shape, plan_row, show, worlds


def shape_of(config: RunConfig, vocab_size: int) -> Shape:
    """The sizes of the model. It is made on the meta device, and so takes no memory."""
    with torch.device("meta"):
        model = GPT(config.model, vocab_size)
    blocks = sum(parameter.numel() for parameter in model.blocks.parameters())
    whole = sum(parameter.numel() for parameter in model.parameters())
    return Shape(whole, blocks, model.flops_per_token())


def plan(config: RunConfig, options: argparse.Namespace) -> str:
    """Compute the plan, and return it as text.

    Raises:
        FatalError: An option cannot be used. The text names it.
    """
    if not 1 <= options.ranks <= config.train.global_batch_size:
        raise FatalError(
            f"--ranks: {options.ranks} cannot be used: each rank needs a sequence of the global "
            f"batch. Give 1 to {config.train.global_batch_size}, or raise train.global_batch_size."
        )
    if not 0 < options.mfu <= 1:
        raise FatalError(
            f"--mfu: {options.mfu} cannot be used: it is a share. Give one above 0, at most 1."
        )
    dtype = "bfloat16" if config.train.dtype == "auto" else config.train.dtype
    assert dtype in WEIGHT_BYTES
    peak = _peak(options, dtype)
    shape = shape_of(config, options.vocab_size or _vocab_size(config))
    reached = peak * options.mfu
    rows = [plan_row(config, shape, dtype, n, reached) for n in worlds(options.ranks)]
    tokens = config.tokens_per_update
    return "\n".join(
        [
            f"{shape.parameters / 1e6:,.1f} million parameters; an update takes {tokens:,} tokens; "
            f"{config.train.max_steps:,} updates; {config.train.parallel}, {dtype}",
            f"computed with {reached / 1e12:,.0f} TFLOP/s for each rank ({options.mfu:.0%} of the "
            "peak), and a network at least as fast as the table asks for",
            "",
            show(rows, options.price_per_gpu_hour),
        ]
    )


def _vocab_size(config: RunConfig) -> int:
    if config.dataset.tokenizer == "gpt2":
        return GPT2_VOCAB_SIZE
    raise FatalError(
        f"--vocab-size is missing: with dataset.tokenizer {config.dataset.tokenizer!r} the number "
        "of different tokens depends on the data set. Give it by --vocab-size; tiny Shakespeare, "
        "the text of the presets shakespeare-char and shakespeare-char-cpu, has 65 characters."
    )


def _peak(options: argparse.Namespace, dtype: str) -> float:
    if options.peak_tflops is not None:
        if not 0 < options.peak_tflops < math.inf:
            raise FatalError(
                f"--peak-tflops: {options.peak_tflops} cannot be used: it is how many 10^12 "
                "operations the GPU makes in a second. Give a number above 0, such as 989."
            )
        return options.peak_tflops * 1e12
    found = peak_flops(options.gpu, getattr(torch, dtype))
    if found is None:
        raise FatalError(
            f"--gpu: {options.gpu!r} cannot be used: no peak of it is known for {dtype}. "
            "Give its dense tensor peak by --peak-tflops."
        )
    return found
