"""Writes the curves of a run for TensorBoard, on a volume that may fail for a while."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

# The files of this process end so. The times, hosts and numbers of processes that TensorBoard puts
# into the names do not tell them apart: a clock may be ahead, and the others repeat in pods.
_OWN_ENDING = f".{secrets.token_hex(4)}"


def current_file(folder: Path) -> Path | None:
    """Return the file of TensorBoard that this process writes now, or None if there is none.

    Of several, it is the one with the highest number, which TensorBoard puts before the ending.
    """
    own = folder.glob(f"events.*{_OWN_ENDING}")
    return max(own, key=lambda path: int(path.name.split(".")[-2]), default=None)


class Curves:
    """Writes a file of TensorBoard.

    TensorBoard's writer is of no use after its first error. Then a further file is begun, and the
    values that the writer had not written are missing in the curves.
    """

    def __init__(self, folder: Path, purge_step: int, say: Callable[[str], None]):
        """TensorBoard will hide the values of earlier files from `purge_step` on.

        `say` prints a line when writing fails, and no further one until it works again.

        Raises:
            OSError: the file cannot be made.
        """
        self._folder, self._say, self._fails = folder, say, False
        self._writer: SummaryWriter | None = self._open(purge_step)

    def add(self, name: str, value: float, step: int) -> None:
        """Add a value to the curve `name`."""
        self._try(lambda writer: writer.add_scalar(name, value, step))

    def flush(self) -> None:
        """Try to write everything that was added."""
        if self._try(lambda writer: writer.flush()):
            self._fails = False

    def close(self) -> None:
        """Try to write everything, and close the file."""
        if self._writer is not None:
            self._try(lambda writer: writer.close())

    def _open(self, purge_step: int | None = None) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter  # the import takes long

        return SummaryWriter(str(self._folder), purge_step=purge_step, filename_suffix=_OWN_ENDING)

    def _try(self, act: Callable[[SummaryWriter], None]) -> bool:
        """Return whether the volume has taken it."""
        try:
            if self._writer is None:
                self._writer = self._open()
            act(self._writer)
        except OSError as error:
            self._writer = None
            if not self._fails:
                self._say(
                    f"warning: {self._folder} cannot be written ({error}); training goes on, and "
                    "the curves of TensorBoard have a gap here"
                )
            self._fails = True
            return False
        return True
