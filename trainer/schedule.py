"""The learning rate as a pure function of the update."""

import math

from trainer.config import TrainConfig


def learning_rate(update: int, train: TrainConfig) -> float:
    """Linear warm-up, then cosine decay to `min_lr`, then constant (nanoGPT's get_lr).

    `update` counts from 0. The first update already has a rate above 0:
    warm-up is learning_rate * (update + 1) / (warmup_steps + 1).
    """
    assert update >= 0
    if update < train.warmup_steps:
        return train.learning_rate * (update + 1) / (train.warmup_steps + 1)
    horizon = train.decay_steps or train.max_steps
    if update >= horizon:
        return train.min_lr
    progress = (update - train.warmup_steps) / (horizon - train.warmup_steps)
    share = 0.5 * (1.0 + math.cos(math.pi * progress))
    return train.min_lr + share * (train.learning_rate - train.min_lr)
