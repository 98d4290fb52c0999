"""Which window of the text is sample `index` of update `update`: arithmetic, no state.

The samples of a run are numbered: number = update * global_batch_size + index. An epoch is one
pass over all windows: it shifts the window grid by a random offset below block_size and visits
the windows in a random order, both drawn by a counter-based generator keyed by (seed, epoch).
So the order is the same for any number of ranks, after any resume, whatever evaluation does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SampleOrder:
    """The order of the training windows of one token file."""

    def __init__(self, token_count: int, block_size: int, global_batch_size: int, seed: int):
        """Raise ValueError where the text is too short for one window at every offset."""
        self.windows_per_epoch = token_count // block_size - 1
        if self.windows_per_epoch < 1:
            raise ValueError(
                f"model.block_size: {block_size} is too long for a training split of "
                f"{token_count} tokens; allowed: at most {token_count // 2}"
            )
        self._block_size = block_size
        self._global_batch_size = global_batch_size
        self._seed = seed
        self._cached: tuple[int, NDArray[np.int64]] | None = None

    def window_starts(self, update: int, indices: range) -> NDArray[np.int64]:
        """First tokens of the windows of samples `indices` of update `update`, in order."""
        numbers = update * self._global_batch_size + np.arange(indices.start, indices.stop)
        epochs, places = np.divmod(numbers, self.windows_per_epoch)
        starts = np.empty(len(numbers), np.int64)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            starts[chosen] = self._epoch_starts(int(epoch))[places[chosen]]
        return starts

    def _epoch_starts(self, epoch: int) -> NDArray[np.int64]:
        """Starts of all windows of one epoch in visiting order; the last epoch is kept."""
        if self._cached is None or self._cached[0] != epoch:
            draw = np.random.Generator(np.random.Philox(key=[self._seed, epoch]))
            offset = int(draw.integers(self._block_size))
            order = draw.permutation(self.windows_per_epoch).astype(np.int64)
            self._cached = (epoch, offset + order * self._block_size)
        return self._cached[1]
