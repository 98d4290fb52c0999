"""A run starts with the same weights however its ranks share them."""

from __future__ import annotations

import pytest
import torch

from trainer.config import ModelConfig
from trainer.model import initial_weights
from trainer.model.gpt import GPT

CONFIG = ModelConfig(n_layer=2, n_head=2, n_embd=16, block_size=700, bias=True)


def whole(seed: int) -> GPT:
    """Return a model with all its initial weights for this seed."""
    with torch.device("meta"):
        model = GPT(CONFIG, 65)
    model.to_empty(device="cpu")
    initial_weights.initialise(model, CONFIG, seed)
    return model


def test_the_seed_alone_decides_the_weights() -> None:
    """Equal seeds give equal weights, and other seeds give others, except for constant values. The
    layers of one model differ.
    """
    one, same, other = whole(1), whole(1), whole(2)
    for name, parameter in one.named_parameters():
        assert torch.equal(parameter, same.get_parameter(name))
        is_constant = name.endswith("bias") or parameter.dim() == 1
        assert torch.equal(parameter, other.get_parameter(name)) == is_constant
    first, second = (one.get_parameter(f"blocks.{n}.attn.c_proj.weight") for n in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_shards_are_rows_of_the_whole(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that makes only its own rows gets the same weights as in the whole model. So no rank
    needs the whole model in host memory. Small blocks stand in for many rows.
    """
    monkeypatch.setattr(initial_weights, "_BLOCK_ELEMENTS", 1000)
    wanted = whole(3)

    def rows_of(rank: int, parameter: torch.Tensor) -> tuple[torch.Tensor, int]:
        height = -(-len(parameter) // ranks)
        return parameter.detach()[rank * height : (rank + 1) * height], rank * height

    with torch.device("meta"):
        model = GPT(CONFIG, 65)
    model.to_empty(device="cpu")
    for rank in range(ranks):
        monkeypatch.setattr(
            initial_weights, "local_rows", lambda parameter, rank=rank: rows_of(rank, parameter)
        )
        initial_weights.initialise(model, CONFIG, 3)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, wanted.get_parameter(name)), name


def test_the_sizes_are_those_of_gpt2() -> None:
    model = whole(1)
    std = 0.02 * (768 / 16) ** 0.5
    assert float(model.wpe.weight.std()) == pytest.approx(std, rel=0.05)
    assert float(model.wpe.weight.mean()) == pytest.approx(0, abs=0.01)
    residual = torch.cat([model.get_parameter(f"blocks.{n}.mlp.c_proj.weight") for n in range(2)])
    assert float(residual.std()) == pytest.approx(std / 2, rel=0.1)
    assert (model.ln_f.weight == 1).all()
    assert (model.ln_f.bias == 0).all()
