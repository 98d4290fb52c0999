"""What the user of `fetch` wants, and how it is brought from either place."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cli.fetch.bring import Bringer, Brought, Source
from cli.fetch.folder import Folder
from cli.fetch.progress import duration

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # as trainer/config/option.py has it


@dataclass(frozen=True)
class Order:
    """The options.

    Args:
        run: name of the run; empty: that of the stack.
        stack: empty: the selected one.
        choice: which checkpoint, as `parse_choice` gives it.
        to: the folder; empty: runs/RUN.
        streams: transfers at once.
        by: how the volume's bytes come.
    """

    run: str = ""
    stack: str = ""
    choice: str = "latest"
    to: str = ""
    streams: int = 4
    by: str = "auto"

    def folder(self, name: str) -> Folder:
        """Where the run of this name goes. Raises ValueError: it cannot be used."""
        # no shell replaces the ~ of --to=~/results
        return Folder(Path(self.to or f"runs/{name}").expanduser(), name)

    def bring(
        self, source: Source, path: str, folder: Folder, say: Callable[[str], None]
    ) -> Brought:
        """Bring it, and say what happens. Raises as `Bringer.bring` does."""
        return Bringer(source, path, folder, self.choice, self.streams, say).bring()


def checked_name(name: str) -> str:
    """The name of a run. Raises ValueError: it is none."""
    if not name:
        raise ValueError("the stack has no run of its own: name one. `./disttrain runs` lists them")
    if not NAME.fullmatch(name):
        raise ValueError(
            f"RUN: {name!r} cannot be used: a run's name has only letters, digits, '.', '_' and "
            "'-'. `./disttrain runs` lists the runs on the volume"
        )
    return name


def say(text: str) -> None:
    """A line that is no result; in one piece, because several threads say something."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def summary(brought: Brought, name: str, folder: Path) -> str:
    """What is said at the end. Pure."""
    checkpoint = brought.checkpoint
    what = "without a checkpoint"
    if checkpoint:
        loss = (
            "" if checkpoint.val_loss is None else f" (validation loss {checkpoint.val_loss:.4f})"
        )
        what = f"with checkpoint step {checkpoint.step}{loss}"
    rate = f", {brought.sent / brought.seconds / 1e6:,.1f} MB/s" if brought.sent else ""
    return (
        f"run {name} {what} is in {folder}/\n"
        f"{brought.files} files, {brought.size:,} bytes, sha256 of all is right; "
        f"{brought.sent:,} bytes sent in {duration(brought.seconds)}{rate}"
    )
