"""Notes on the volume that a run has started over, for the process that fills the mirror.

The mirror then still holds the checkpoints of the ended training. A new volume would get the newest
of them, although the new training has saved since then. So the process takes them out (push.py).
Rank 0 writes the note, and the process removes it when that is done.
"""

from __future__ import annotations

from pathlib import Path

from trainer.checkpoint.durable import write_text

_NOTE_FILE = "started-over.txt"


def note_start_over(run_dir: Path) -> None:
    """Note that the run starts at step 0 beside older checkpoints. Raises OSError."""
    write_text(run_dir / _NOTE_FILE, "the mirror still offers checkpoints of an ended training\n")


def has_started_over(run_dir: Path) -> bool:
    """Whether there is such a note. Raises OSError."""
    return (run_dir / _NOTE_FILE).exists()


def forget_start_over(run_dir: Path) -> None:
    """Remove the note if there is one. Raises OSError."""
    (run_dir / _NOTE_FILE).unlink(missing_ok=True)
