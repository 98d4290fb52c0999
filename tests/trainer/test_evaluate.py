"""The exact pass over the validation split."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch

from tests.trainer.lab import Lab
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
