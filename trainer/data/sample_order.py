"""Computes which window of the text is sample `index` of an update, without any state.

The samples of a run are numbered: number = update * global_batch_size + index. An epoch is one pass
over all windows. It shifts the grid of windows by a random offset below block_size, and visits the
windows in a random order; both are chosen by (seed, epoch). So the order is the same for any number
of ranks, after any resume, and whatever the evaluation does. No list of windows is kept in memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainer.config.problem import ConfigError, problem_text
from trainer.data.permutation import Permutation, draw

_OFFSET, _ORDER = 1, 2  # the two things that are drawn for an epoch


class SampleOrder:
    """The order of the training windows of one token file."""

    def __init__(self, token_count: int, block_size: int, global_batch_size: int, seed: int):
        """Raise ConfigError if the text is too short for one window at every offset."""
        self.windows_per_epoch = token_count // block_size - 1
        if self.windows_per_epoch < 1:
            raise ConfigError(
                [
                    problem_text(
                        "model.block_size",
                        block_size,
                        f"the training split has only {token_count} tokens",
                        f"Set at most {token_count // 2}, or take a longer text",
                    )
                ]
            )
        self._block_size = block_size
        self._global_batch_size = global_batch_size
        self._seed = seed
        self._epoch: tuple[int, int, Permutation] | None = None  # number, offset, order

    def window_starts(self, update: int, indices: range) -> NDArray[np.int64]:
        """Return the first tokens of the windows of samples `indices` of an update, in order."""
        numbers = update * self._global_batch_size + np.arange(indices.start, indices.stop)
        epochs, places = np.divmod(numbers, self.windows_per_epoch)
        starts = np.empty(len(numbers), np.int64)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            starts[chosen] = self._epoch_starts(int(epoch), places[chosen])
        return starts

    def _epoch_starts(self, epoch: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the windows at `places` of an epoch's order begin."""
        kept = self._epoch  # It is read once, because another thread may replace it.
        if kept is None or kept[0] != epoch:
            offset = draw(self._seed, epoch, _OFFSET) % self._block_size
            order = Permutation(self.windows_per_epoch, self._seed, epoch, _ORDER)
            self._epoch = kept = (epoch, offset, order)
        _, offset, order = kept
        return offset + order(places) * self._block_size
