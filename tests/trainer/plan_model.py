"""The model in the tests of `plan`. Two ranks can divide each of its sizes evenly."""

from trainer.config.model import ModelConfig

VOCAB_SIZE = 128
MODEL = ModelConfig(n_layer=3, n_head=2, n_embd=32, block_size=16, dropout=0.0)
