"""Which window of the text is sample `index` of update `update`: arithmetic, no state.

The samples of a run are numbered: number = update * global_batch_size + index. An epoch is one
pass over all windows: it shifts the window grid by a random offset below block_size and visits
the windows in a random order, both chosen by (seed, epoch). So the order is the same for any number
of ranks, after any resume, whatever evaluation does; and no list of windows is kept in memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainer.config.problem import ConfigError, problem_text
from trainer.data.permutation import Permutation, draw

_OFFSET, _ORDER = 1, 2  # what is drawn for an epoch


class SampleOrder:
    """The order of the training windows of one token file."""

    def __init__(self, token_count: int, block_size: int, global_batch_size: int, seed: int):
        """Raise ConfigError where the text is too short for one window at every offset."""
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
        self._epoch: tuple[int, int, Permutation] | None = None  # of the last one: number, offset

    def window_starts(self, update: int, indices: range) -> NDArray[np.int64]:
        """First tokens of the windows of samples `indices` of update `update`, in order."""
        numbers = update * self._global_batch_size + np.arange(indices.start, indices.stop)
        epochs, places = np.divmod(numbers, self.windows_per_epoch)
        starts = np.empty(len(numbers), np.int64)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            starts[chosen] = self._epoch_starts(int(epoch), places[chosen])
        return starts

    def _epoch_starts(self, epoch: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the windows begin that an epoch visits at `places`."""
        kept = self._epoch  # read once: another thread may ask for another epoch meanwhile
        if kept is None or kept[0] != epoch:
            offset = draw(self._seed, epoch, _OFFSET) % self._block_size
            order = Permutation(self.windows_per_epoch, self._seed, epoch, _ORDER)
            self._epoch = kept = (epoch, offset, order)
        _, offset, order = kept
        return offset + order(places) * self._block_size
