"""The section `model` of a run."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config.option import option


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the GPT. The names of the options are nanoGPT's."""

    n_layer: int = option(6, "transformer blocks", at_least=1)
    n_head: int = option(6, "attention heads; must divide n_embd", at_least=1)
    n_embd: int = option(384, "embedding width", at_least=1)
    block_size: int = option(256, "context length in tokens", at_least=1)
    dropout: float = option(0.2, "dropout probability", at_least=0, below=1)
    bias: bool = option(False, "biases in linear layers and layer norms")
    gelu: str = option(
        "exact", "activation; GPT-2's own weights want tanh", choices=("exact", "tanh")
    )
