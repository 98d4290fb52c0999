"""The options of `fetch`, and what copying from the volume and from a mirror have in common."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from cli.fetch.bring import Bringer, Brought, Source
from cli.fetch.folder import Folder
from cli.fetch.progress import duration
from infra.command_line import Say

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # as trainer/config/option.py has it


@dataclass(frozen=True)
class Order:
    """The options of `fetch`.

    Args:
        run: the name of the run; an empty text means the stack's run.
        stack: the name of the stack; an empty text means the selected stack.
        choice: which checkpoint, as `parse_choice` returns it.
        to: the target folder; an empty text means runs/RUN.
        streams: the number of transfers at the same time.
        by: how bytes are read from the volume: `auto` or `exec` (pod_source.py).
    """

    run: str = ""
    stack: str = ""
    choice: str = "latest"
    to: str = ""
    streams: int = 4
    by: str = "auto"

    def folder(self, name: str) -> Folder:
        """Return the target folder of a run. Raises ValueError if it cannot be used."""
        # Most shells do not expand the ~ in --to=~/results.
        return Folder(Path(self.to or f"runs/{name}").expanduser(), name)

    def bring(self, source: Source, path: str, folder: Folder, say: Say) -> Brought:
        """Copy the run from a source, and tell the user what happens.

        It raises the errors of `Bringer.bring`.
        """
        return Bringer(source, path, folder, self.choice, self.streams, say).bring()


def checked_name(name: str) -> str:
    """Return the name of a run. Raises ValueError if it is empty or not valid."""
    if not name:
        raise ValueError("the stack has no run of its own: name one. `./disttrain runs` lists them")
    if not NAME.fullmatch(name):
        raise ValueError(
            f"RUN: {name!r} cannot be used: a run's name has only letters, digits, '.', '_' and "
            "'-'. `./disttrain runs` lists the runs on the volume"
        )
    return name


def say(text: str) -> None:
    """Write a line to standard error, because it is no result of the command.

    It is written in one piece, because several threads write lines.
    """
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def summary(brought: Brought, name: str, folder: Path) -> str:
    """Return the final text for the user. This function is pure."""
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
