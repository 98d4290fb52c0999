"""The exact pass over the validation split."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from tests.trainer.lab import Lab
from trainer import evaluate as module
from trainer.data.dataset import open_dataset
from trainer.evaluate import Validation, evaluate
from trainer.model.gpt import GPT
from trainer.parallel.world import World


def test_an_evaluation_runs_what_was_compiled_and_reads_the_gpu_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation runs compiled code, in one shape, and reads a tensor once, at its end. Each
    read makes the host wait until the GPU has finished.
    """
    run = lab.config()
    dataset, device = open_dataset(run.dataset_dir), torch.device("cpu")
    model = GPT(run.model, dataset.tokenizer.vocab_size)
    shapes: list[tuple[int, ...]] = []

    def compiled(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(tokens.shape))
        return model(tokens, targets)

    def validation(forward: Callable[..., torch.Tensor] | None) -> Validation:
        found = evaluate(
            model, dataset, 64, World(), device, nullcontext, lambda: False, compiled=forward
        )
        assert found is not None
        return found

    plain, reads = validation(None), list[torch.Tensor]()
    read = torch.Tensor.__float__

    def counted(tensor: torch.Tensor) -> float:
        reads.append(tensor)
        return read(tensor)

    for name in ("__float__", "item", "tolist"):
        monkeypatch.setattr(torch.Tensor, name, counted)
    with_compiled = validation(compiled)
    monkeypatch.undo()
    full = (len(dataset.val) - 1) // run.model.block_size // 64
    assert full > 1
    assert shapes == [(64, run.model.block_size)] * full
    assert with_compiled == plain
    assert len(reads) == 1


def test_a_batch_is_read_before_ranks_meet(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is read before the ranks ask each other whether one has to stop. If a volume does not
    answer the read, the other ranks wait there, where they may wait longest: with FSDP on GPUs,
    NCCL would end them in the pass after `train.timeout_seconds`.
    """
    run, done = lab.config(), list[str]()
    dataset, device = open_dataset(run.dataset_dir), torch.device("cpu")
    model = GPT(run.model, dataset.tokenizer.vocab_size)
    gather = module.gather

    def told_gather(*values: Any) -> Any:
        done.append("read")
        return gather(*values)

    def told_pass(*values: Any) -> None:
        done.append("pass")

    def goes_on() -> bool:
        done.append("meet")
        return False

    monkeypatch.setattr(module, "gather", told_gather)
    model.register_forward_pre_hook(told_pass)
    evaluate(model, dataset, 64, World(), device, nullcontext, goes_on)
    assert done == ["read", "meet", "pass"] * (len(done) // 3)
    assert done
