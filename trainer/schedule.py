"""The learning rate of each update. The function is pure."""

import math

from trainer.config import TrainConfig


def learning_rate(update: int, train: TrainConfig) -> float:
    """The rate rises linearly, then decays to `min_lr` as a cosine, then stays (nanoGPT's get_lr).

    `update` counts from 0. The rate of the warm-up is
    learning_rate * (update + 1) / (warmup_steps + 1), so the first update has a rate above 0 too.
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
